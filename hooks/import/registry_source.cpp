#include "hooks/import/registry_source.hpp"

#include <algorithm>

#include "hooks/import/blob_access.hpp"
#include "hooks/import/blob_downloader.hpp"
#include "hooks/import/http.hpp"
#include "hooks/import/registry_client.hpp"

namespace situla {
namespace {

constexpr uint32_t kMostConnections = 8;

RegistryClient::Options client_options(const ImportSettings& settings, std::function<bool()> cancelled) {
  RegistryClient::Options options;
  options.allow_http = settings.allow_http;
  options.cancelled = std::move(cancelled);
  options.retries = std::clamp(settings.transfer_retries, kLeastRetries, 100U);
  return options;
}

class RegistrySource final : public ImageSource {
 public:
  RegistrySource(const ImportRequest& request, ImageReference reference, std::unique_ptr<HttpTransport> transport,
                 const std::function<bool()>& cancelled)
      : settings_(request.settings),
        reference_(std::move(reference)),
        transport_(std::move(transport)),
        client_(*transport_, reference_, request.credentials, client_options(settings_, cancelled)),
        cancelled_(cancelled) {}

  Result<ResolvedImage> resolve(const Platform& platform) override { return client_.resolve(platform); }
  Result<std::string> fetch_config(const Descriptor& config) override { return client_.fetch_config(config); }

  Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) override {
    BlobDownloader::Options options;
    options.connections = std::clamp(settings_.max_connections, 1U, kMostConnections);
    options.retries = std::clamp(settings_.transfer_retries, kLeastRetries, 100U);
    auto downloader = std::make_shared<BlobDownloader>(*transport_, client_, blobs, options);
    return BlobStream{[downloader](size_t blob) { return downloader->read(blob); },
                      [downloader] { downloader->stop(); }};
  }

  std::vector<bool> readable(const std::vector<Blob>& blobs) override {
    return probe_blobs(*transport_, client_, blobs, cancelled_);
  }
  [[nodiscard]] Origin origin() const override { return {reference_.registry, reference_.repository}; }

  [[nodiscard]] std::string text() const override { return reference_.text(); }
  [[nodiscard]] std::string uri(const Digest& digest) const override {
    ImageReference exact = reference_;
    if (!exact.digest) exact.digest = digest;
    return "docker://" + exact.text();
  }

 private:
  const ImportSettings& settings_;
  ImageReference reference_;
  std::unique_ptr<HttpTransport> transport_;
  RegistryClient client_;
  std::function<bool()> cancelled_;
};

}  // namespace

Result<std::unique_ptr<ImageSource>> open_registry_source(const ImportRequest& request, Progress& progress) {
  TRY_ASSIGN(ImageReference reference, ImageReference::parse(request.image));
  TRY_ASSIGN(auto transport, make_curl_transport(request.settings));
  return std::make_unique<RegistrySource>(request, std::move(reference), std::move(transport),
                                          [&progress] { return progress.cancelled(); });
}

}  // namespace situla
