#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "hooks/registry/blob_downloader.hpp"
#include "hooks/registry/registry_client.hpp"
#include "hooks/registry/sha256.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// Who gets to see which login: the user's at the registry, at its token server, and at a host that it has no business
/// with.
void check_request(const HttpRequest& request) {
  const std::string place = place_of(request.url);
  if (!is_plain_token(request.url)) std::abort();
  for (const char c : request.authorization)
    if (c < ' ' || c == '\x7f') std::abort();
  if (request.authorization.starts_with("Bearer ") && place != "https://registry.test:443") std::abort();
  if (!request.authorization.starts_with("Basic ")) return;
  const std::string shown = decode_base64(std::string_view(request.authorization).substr(6)).value_or("");
  if (!place.starts_with("https://") || shown.ends_with("not yours")) std::abort();
  if (shown.ends_with("token server") && place != "https://auth.test:443") std::abort();
}

/// Answers one after the other: a line with the status, lines of headers, an empty line, the body; "next answer"
/// between two. Without any more of them nothing is found.
class Answers final : public HttpTransport {
 public:
  explicit Answers(std::string_view bytes) : rest_(bytes) {}

  Result<TransferId> start(const HttpRequest& request, TransferHandler& handler) override {
    check_request(request);
    running_.emplace(++last_, &handler);
    return last_;
  }
  void resume(TransferId) override {}
  void cancel(TransferId id) override { running_.erase(id); }
  void wake() override {}
  Result<void> poll(std::chrono::milliseconds) override {
    if (running_.empty()) return {};
    const auto [id, handler] = *running_.begin();
    HttpResponse response = next();
    const std::string body = std::exchange(response.body, {});
    Flow flow = handler->on_head(response);
    for (size_t at = 0; flow == Flow::go_on && at < body.size(); at += kPiece)
      flow = handler->on_data(std::string_view(body).substr(at, kPiece));
    running_.erase(id);
    // One that is to be continued later is broken off here.
    const bool broken = flow == Flow::pause || response.header("breaks");
    handler->on_end(broken ? Result<void>(fail(ErrorKind::network, "the connection broke")) : Result<void>());
    return {};
  }

 private:
  static constexpr size_t kPiece = 300;

  HttpResponse next() {
    constexpr std::string_view kBetween = "\nnext answer\n";
    const size_t end = rest_.find(kBetween);
    std::string_view answer = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + kBetween.size());
    HttpResponse response;
    response.status = 404;
    for (bool first = true;; first = false) {
      const auto line = cut(answer, '\n');
      const std::string_view text = line ? line->first : answer;
      answer = line ? line->second : std::string_view();
      if (text.empty()) break;
      if (const auto status = parse_unsigned(text); first && status && *status < 1000)
        response.status = static_cast<long>(*status);
      else if (const auto header = cut(text, ':'))
        response.headers.emplace_back(to_lower(header->first), trim(header->second));
    }
    response.body = answer;
    return response;
  }

  std::string_view rest_;
  std::map<TransferId, TransferHandler*> running_;
  TransferId last_ = 0;
};

void read_blobs(HttpTransport& transport, RegistryClient& client, const Manifest& manifest) {
  constexpr uint64_t kMostBytes = 20000;
  std::vector<Blob> blobs;
  for (const Descriptor& layer : manifest.layers)
    if (layer.size <= kMostBytes && blobs.size() < 3) blobs.push_back({layer.digest, layer.size, "layer", layer.urls});
  BlobDownloader downloader(transport, {&client}, blobs,
                            {.connections = 2, .limits = {.retries = 0}, .segment_bytes = 512, .window_bytes = 2048});
  for (size_t i = 0; i < blobs.size(); ++i) {
    uint64_t size = 0;
    for (;;) {
      const auto bytes = downloader.read(i);
      if (!bytes) return;
      if (bytes->empty()) break;
      size += bytes->size();
    }
    if (size != blobs[i].size) std::abort();
  }
}

}  // namespace

/// What a registry, a token server and whoever is between them may answer, one after the other.
void situla::fuzz(std::string_view bytes) {
  CredentialSet credentials;
  credentials.add({"registry.test", "user", "registry"});
  credentials.add({"auth.test", "user", "token server"});
  credentials.add({"elsewhere.test", "user", "not yours"});
  Answers transport(bytes);
  RegistryClient::Options options;
  options.limits.retries = 1;
  options.token_servers = {{"registry.test", "auth.test"}};
  options.sleep = [](std::chrono::milliseconds time) {
    // Two minutes that a server asked for, and the spread of many nodes that it asked the same.
    if (time.count() < 0 || time > std::chrono::seconds(135)) std::abort();
  };
  RegistryClient client(transport, *ImageReference::parse("registry.test/team/image:1"), credentials, options);
  const auto image = client.resolve(*Platform::parse("amd64"));
  if (!image || image->is_known) return;
  // What is not what its digest says is no image.
  if (image->digest != digest_of(image->bytes)) std::abort();
  if (const auto config = client.fetch_config(image->manifest.config);
      config && digest_of(*config) != image->manifest.config.digest)
    std::abort();
  read_blobs(transport, client, image->manifest);
}
