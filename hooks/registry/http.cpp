#include "hooks/registry/http.hpp"

#include <algorithm>
#include <ctime>

#include "common/base/text.hpp"
#include "hooks/squashfs/budget.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kPollTime{200};

class Collector final : public TransferHandler {
 public:
  explicit Collector(size_t limit) : limit_(limit) {}

  Flow on_head(const HttpResponse& head) override {
    response = head;
    return Flow::go_on;
  }
  Flow on_data(std::string_view bytes) override {
    if (response.body.size() + bytes.size() > limit_) {
      too_large = true;
      return Flow::stop;
    }
    response.body += bytes;
    return Flow::go_on;
  }
  void on_end(Result<void> outcome) override {
    result = std::move(outcome);
    ended = true;
  }

  HttpResponse response;
  Result<void> result;
  bool ended = false, too_large = false;

 private:
  size_t limit_;
};

/// RFC 9110, 5.6.7; the obsolete forms are not understood.
std::optional<int64_t> parse_http_date(const std::string& text) {
  struct tm parts {};
  const char* end = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return timegm(&parts);
}

/// Seconds that a response asks to wait. A date counts from the server's own clock where it tells it.
std::optional<uint64_t> retry_after(const HttpResponse& response) {
  const std::string text = response.header("retry-after").value_or("");
  if (const auto seconds = parse_unsigned(text)) return seconds;
  const auto date = parse_http_date(text);
  if (!date) return std::nullopt;
  const int64_t now = parse_http_date(response.header("date").value_or("")).value_or(time(nullptr));
  return *date > now ? static_cast<uint64_t>(*date - now) : 0;
}

}  // namespace

std::optional<std::string> HttpResponse::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return std::nullopt;
}

std::vector<std::string> HttpResponse::all(std::string_view name) const {
  std::vector<std::string> values;
  for (const auto& [key, value] : headers)
    if (key == name) values.push_back(value);
  return values;
}

Result<HttpResponse> fetch(HttpTransport& transport, const HttpRequest& request, size_t limit,
                           const std::function<bool()>& cancelled) {
  Collector collector(limit);
  TRY_ASSIGN(const TransferId id, transport.start(request, collector));
  while (!collector.ended) {
    auto polled = transport.poll(kPollTime);
    if (polled && cancelled && cancelled()) polled = fail(ErrorKind::cancelled, "cancelled");
    if (!polled && !collector.ended) transport.cancel(id);
    if (!polled) return fail(std::move(polled).error());
  }
  if (collector.too_large && request.limit_key != nullptr) {
    const uint64_t length = parse_unsigned(collector.response.header("content-length").value_or("")).value_or(0);
    return fail(text_over_limit("the answer of " + authority_of(request.url), std::max<uint64_t>(length, limit + 1),
                                limit, request.limit_key));
  }
  if (collector.too_large)
    return fail(
        Error(ErrorKind::corrupt, authority_of(request.url) + ": the answer is larger than " + format_size(limit))
            .with_code(ErrorCode::registry_answer)
            .with_hint("a manifest, a token and a configuration are small: this may not be a container registry"));
  if (!collector.result) return fail(std::move(collector.result).error());
  return std::move(collector.response);
}

std::string authority_of(std::string_view url) {
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  // A user and password in the URL of a realm or proxy are nobody's business.
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  return excerpt(url);
}

bool is_transient_status(long status) {
  return status == 408 || status == 429 || (status >= 500 && status != 501);
}

std::chrono::milliseconds retry_delay(unsigned attempt, const HttpResponse* response) {
  constexpr std::chrono::milliseconds kLongest{30000};
  if (response != nullptr)
    if (const auto asked = retry_after(*response))
      return std::min(kLongest, std::chrono::milliseconds(1000 * std::min<uint64_t>(*asked, 60)));
  return std::min(kLongest, std::chrono::milliseconds(250U << std::min(attempt - 1, 10U)));
}

std::string trying_again_in(std::chrono::milliseconds delay) {
  const int64_t seconds = std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(delay).count());
  return "trying again in " + std::to_string(seconds) + " s";
}

}  // namespace situla
