#include <algorithm>
#include <atomic>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "hooks/registry/blob_downloader.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/registry_client.hpp"
#include "hooks/request/mirrors.hpp"
#include "hooks/sources/open_source.hpp"

namespace situla {
namespace {

constexpr uint32_t kMostConnections = 8;

/// Of a place that is not the last one: it is not waited for, because there is another.
constexpr uint32_t kMirrorConnectSeconds = 5;

RegistryClient::Options client_options(const ImportRequest& request, const RegistryEndpoint& endpoint, bool last) {
  const ImportSettings& settings = request.settings;
  RegistryClient::Options options;
  options.budget = request.budget;
  options.allow_http = settings.allow_http || endpoint.insecure;
  options.insecure = endpoint.insecure;
  options.stands_in = endpoint.stands_in;
  options.token_servers = settings.token_servers;
  options.limits = last ? RetryLimits::of(settings) : RetryLimits{.retries = 0};
  if (request.has_stand_in) options.limits.patience = {};
  options.connect_timeout = last ? 0 : kMirrorConnectSeconds;
  options.impatient = request.impatient;
  options.known = request.known;
  return options;
}

/// The image as the user named it, from one of several places. Where `clients_` starts is where the manifest came from.
class RegistrySource final : public ImageSource {
 public:
  RegistrySource(const ImportRequest& request, ImageReference reference, const std::vector<RegistryEndpoint>& endpoints,
                 std::unique_ptr<HttpTransport> transport, Progress& progress)
      : settings_(request.settings),
        reference_(std::move(reference)),
        progress_(progress),
        transport_(std::move(transport)) {
    for (const RegistryEndpoint& endpoint : endpoints) {
      RegistryClient::Options options = client_options(request, endpoint, &endpoint == &endpoints.back());
      options.cancelled = [&progress] { return progress.cancelled(); };
      options.waiting = [this](const std::string& why) {
        if (asking_) progress_.waiting(why);
      };
      clients_.push_back(
          std::make_unique<RegistryClient>(*transport_, endpoint.reference, request.credentials, std::move(options)));
    }
  }

  Result<ResolvedImage> resolve(const Platform& platform) override {
    return ask([&](RegistryClient& client) { return client.resolve(platform); });
  }
  Result<Digest> named_digest(const Platform&) override {
    return ask([](RegistryClient& client) { return client.named_digest(); });
  }
  Result<std::string> fetch_config(const Descriptor& config) override {
    return ask([&](RegistryClient& client) { return client.fetch_config(config); });
  }
  /// A mirror may have a part of them only.
  Result<std::vector<std::string>> list_tags() override { return clients_.back()->list_tags(); }

  Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) override {
    BlobDownloader::Options options;
    // 0: as many as there can be (enroot's import.md).
    options.connections =
        settings_.max_connections == 0 ? kMostConnections : std::min(settings_.max_connections, kMostConnections);
    options.limits = RetryLimits::of(settings_);
    options.stall_rate = settings_.stall_timeout == 0 ? 0 : settings_.stall_rate;
    std::vector<RegistryClient*> registries;
    for (const auto& client : clients_) registries.push_back(client.get());
    auto downloader = std::make_shared<BlobDownloader>(*transport_, std::move(registries), blobs, options);
    return BlobStream{[downloader](size_t blob) { return downloader->read(blob); },
                      [downloader] { downloader->stop(); }, [downloader] { return downloader->waits_for(); }};
  }

  [[nodiscard]] std::string text() const override { return reference_.text(); }
  [[nodiscard]] std::string uri(const Digest& digest) const override {
    ImageReference exact = reference_;
    if (!exact.digest) exact.digest = digest;
    return "docker://" + exact.text();
  }

 private:
  /// Asks one place after the other; those that do not answer are not asked again. The error names all of them.
  template <typename Question>
  auto ask(const Question& question) -> decltype(question(std::declval<RegistryClient&>())) {
    asking_ = true;
    const ScopeExit asked([this] { asking_ = false; });
    std::string before;
    while (true) {
      RegistryClient& client = *clients_.front();
      const std::string place = printable(client.reference().registry + "/" + client.reference().repository);
      auto answer = question(client);
      if (answer || answer.error().kind() == ErrorKind::cancelled) return answer;
      Error error = std::move(answer).error();
      // What is named like the image itself needs no second name.
      if (place != printable(reference_.registry + "/" + reference_.repository)) error.with_context("at " + place);
      if (clients_.size() == 1) {
        if (before.empty()) return fail(std::move(error));
        return fail(error.in_words(error.message() + "; before that" + before));
      }
      progress_.note("mirror not used: " + error.message());
      before += (before.empty() ? " " : "; ") + error.message();
      clients_.erase(clients_.begin());
    }
  }

  const ImportSettings& settings_;
  ImageReference reference_;
  Progress& progress_;
  std::unique_ptr<HttpTransport> transport_;
  std::vector<std::unique_ptr<RegistryClient>> clients_;  ///< never empty
  /// In the thread that `progress_` belongs to. The downloader's asks, too, when a token has expired.
  std::atomic<bool> asking_{false};
};

}  // namespace

Result<std::unique_ptr<ImageSource>> open_registry_source(const ImportRequest& request, Progress& progress) {
  TRY_ASSIGN(ImageReference reference, ImageReference::parse(request.image));
  auto endpoints = endpoints_of(reference, request.rules);
  if (!endpoints)
    return fail(
        std::move(endpoints).error().with_context("failed to import docker image: " + request.image_in_words()));
  TRY_ASSIGN(auto transport, make_curl_transport(request.settings));
  return std::make_unique<RegistrySource>(request, std::move(reference), *endpoints, std::move(transport), progress);
}

}  // namespace situla
