
#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/file.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/sources/engine.hpp"

namespace situla {
namespace {

constexpr size_t kMaxAnswer = size_t{4} << 20U;
constexpr size_t kMaxErrorAnswer = size_t{64} << 10U;
constexpr std::chrono::milliseconds kPollTime{200};

/// {"message":"..."}, as both engines answer.
std::string message_of(long status, const std::string& body) {
  const auto json = parse_json(body);
  const Json* message = json ? json->find("message") : nullptr;
  if (message != nullptr && message->as_text() != nullptr) return excerpt(*message->as_text());
  return "it answers with status " + std::to_string(status);
}

/// Writes a body to a file; the body of an error is kept.
class Spooler final : public TransferHandler {
 public:
  explicit Spooler(int fd) : fd_(fd) {}

  Flow on_head(const HttpResponse& head) override {
    status = head.status;
    return Flow::go_on;
  }
  Flow on_data(std::string_view bytes) override {
    if (status != 200) {
      answer.append(bytes.substr(0, kMaxErrorAnswer - std::min(kMaxErrorAnswer, answer.size())));
      return Flow::go_on;
    }
    if (written_well) written_well = write_all(fd_, bytes);
    written += bytes.size();
    return written_well ? Flow::go_on : Flow::stop;
  }
  void on_end(Result<void> outcome) override {
    result = std::move(outcome);
    ended = true;
  }

  long status = 0;
  uint64_t written = 0;
  std::string answer;
  Result<void> written_well, result;
  bool ended = false;

 private:
  int fd_;
};

class EngineApi final : public Engine {
 public:
  EngineApi(ImageKind kind, std::string socket, std::unique_ptr<HttpTransport> transport)
      : podman_(kind == ImageKind::podman),
        socket_(std::move(socket)),
        place_(printable(socket_)),
        transport_(std::move(transport)) {}

  Result<std::optional<uint64_t>> find(const std::string& image, const EngineWatch& watch) override {
    TRY_ASSIGN(const HttpResponse response, fetch(*transport_, request(image, "json"), kMaxAnswer, watch.cancelled));
    if (response.status == 404) return std::nullopt;
    if (response.status != 200) return fail(refusal(response.status, response.body));
    const auto json = parse_json(response.body);
    if (!json || json->find("Id") == nullptr)
      return fail(ErrorKind::failure, "talk to " + place_ + ": it does not answer as a container engine does");
    const Json* size = json->find("Size");
    return size != nullptr ? size->as_number().value_or(0) : 0;
  }

  Result<void> save(const std::string& image, int fd, const EngineWatch& watch) override {
    Spooler spooler(fd);
    TRY_ASSIGN(const TransferId id,
               transport_->start(request(image, podman_ ? "get?format=docker-archive" : "get"), spooler));
    while (!spooler.ended) {
      auto polled = transport_->poll(kPollTime);
      if (polled && watch.cancelled()) polled = fail(ErrorKind::cancelled, "cancelled");
      if (!polled && !spooler.ended) transport_->cancel(id);
      TRY(polled);
      watch.written(spooler.written);
    }
    TRY(spooler.written_well);
    TRY(spooler.result);
    if (spooler.status != 200) return fail(refusal(spooler.status, spooler.answer));
    return {};
  }

  [[nodiscard]] const std::string& place() const override { return place_; }

 private:
  /// The name has no character that a URL would need to have escaped: EngineReference.
  [[nodiscard]] HttpRequest request(const std::string& image, const std::string& what) const {
    HttpRequest request;
    request.unix_socket = socket_;
    request.url = std::string("http://localhost/") + (podman_ ? "v4.0.0/libpod/" : "") + "images/" + image + "/" + what;
    return request;
  }

  [[nodiscard]] Error refusal(long status, const std::string& body) const {
    return {status == 401 || status == 403 ? ErrorKind::denied : ErrorKind::failure,
            "ask " + place_ + ": " + message_of(status, body)};
  }

  bool podman_;
  std::string socket_, place_;
  std::unique_ptr<HttpTransport> transport_;
};

}  // namespace

Result<std::unique_ptr<Engine>> make_engine_api(ImageKind kind, const std::string& socket) {
  TRY_ASSIGN(auto transport, make_curl_transport(ImportSettings()));
  return std::make_unique<EngineApi>(kind, socket, std::move(transport));
}

}  // namespace situla
