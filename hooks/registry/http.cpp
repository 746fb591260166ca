#include "hooks/registry/http.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "common/base/chance.hpp"
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

RetryLimits RetryLimits::of(const ImportSettings& settings) {
  constexpr std::chrono::minutes kPatience{2};
  return {std::clamp(settings.transfer_retries, kLeastRetries, 100U),
          settings.transfer_retries == 0 ? kPatience : std::chrono::milliseconds(0)};
}

bool RetryLimits::reached(unsigned attempt, std::chrono::milliseconds failing, const Error* error) const {
  // Name servers are busy when all nodes begin at once, and a registry that starts again listens some seconds later.
  constexpr unsigned kMostUnreached = 2;
  constexpr std::chrono::milliseconds kUnreachedPatience{2000};
  const bool unreachable = error != nullptr && error->kind() == ErrorKind::unreachable;
  std::chrono::milliseconds longest = patience;
  if (unreachable)
    longest = std::min(patience, kUnreachedPatience);
  else if (error != nullptr && error->errnum() != ECONNRESET)
    longest = {};
  return attempt > (unreachable ? std::min(retries, kMostUnreached) : retries) && failing >= longest;
}

std::chrono::milliseconds retry_delay(unsigned attempt, const HttpResponse* response) {
  constexpr std::chrono::milliseconds kFirst{250}, kLongest{10000}, kMostSpread{15000};
  constexpr uint64_t kLongestAsked = 120;  // seconds
  const auto delay = by_chance(std::min(kLongest, kFirst * (1U << std::min(attempt - 1, 10U))), 0.5, 1.5);
  const auto seconds = response == nullptr ? std::nullopt : retry_after(*response);
  if (!seconds) return delay;
  // All nodes were told the same.
  const std::chrono::milliseconds asked(1000 * std::min(*seconds, kLongestAsked));
  return std::max(delay, asked + by_chance(std::min(asked / 2, kMostSpread), 0, 1));
}

std::string problem_in_words(long status, const Error* error) {
  if (error == nullptr) return "answer " + std::to_string(status);
  return error->kind() == ErrorKind::unreachable ? "it cannot be reached" : "no answer";
}

std::string trying_again_in(std::chrono::milliseconds delay) {
  const int64_t seconds = std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(delay).count());
  return "trying again in " + std::to_string(seconds) + " s";
}

}  // namespace situla
