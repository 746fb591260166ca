// How are bytes fetched over HTTP? An interface that tests can replace; curl_transport.cpp is the one that talks to a
// network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/request/request.hpp"

namespace situla {

struct HttpRequest {
  bool head = false;  ///< HEAD instead of GET
  std::string url;
  std::string accept;         ///< value of Accept; empty: curl's
  std::string authorization;  ///< whole value of Authorization; not sent on to another host by a redirect
  std::optional<std::pair<uint64_t, uint64_t>> range = std::nullopt;  ///< first and last byte
  std::string form;  ///< not empty: POST of this application/x-www-form-urlencoded body; redirects are not followed
  std::string unix_socket = {};     ///< not empty: the server's; no TLS, no proxy, no redirects, no limit of time
  bool insecure = false;            ///< the registry's rule says so: its certificate is not verified, http is allowed
  uint32_t connect_timeout = 0;     ///< seconds; 0: what the settings say
  uint32_t time_limit = 0;          ///< seconds for the whole answer; the user's ENROOT_TRANSFER_TIMEOUT comes first
  bool at_once = false;             ///< time_limit is meant to the second: whoever asks has something else to do
  bool* speaks_tls = nullptr;       ///< not null: set at the end, when TLS was begun; lives until then
  const char* limit_key = nullptr;  ///< of situla.toml, which limits the size of the answer; null: nobody can change it
};

struct HttpResponse {
  long status = 0;
  std::vector<std::pair<std::string, std::string>>
      headers;       ///< names in lower case; of the last response after redirects
  std::string body;  ///< filled by fetch() only

  [[nodiscard]] std::optional<std::string> header(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> all(std::string_view name) const;
};

/// What a handler wants next.
enum class Flow { go_on, pause, stop };

/// Hears of one transfer. Called from poll() only.
class TransferHandler {
 public:
  virtual ~TransferHandler() = default;
  virtual Flow on_head(const HttpResponse& head) = 0;
  /// pause: the same bytes come again after resume().
  virtual Flow on_data(std::string_view bytes) = 0;
  /// The transfer is over and its id is gone. ErrorKind::network: trying again may help; errnum() is ECONNRESET where
  /// the connection was reset. A status is not an error here.
  virtual void on_end(Result<void> result) = 0;
};

using TransferId = uint64_t;

/// Single-threaded but for wake(). Connections are kept and reused.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  virtual Result<TransferId> start(const HttpRequest& request, TransferHandler& handler) = 0;
  virtual void resume(TransferId id) = 0;
  /// Ends a transfer without on_end().
  virtual void cancel(TransferId id) = 0;
  /// Waits for events at most this long and runs the callbacks.
  virtual Result<void> poll(std::chrono::milliseconds time) = 0;
  /// Makes poll() return; may be called from any thread.
  virtual void wake() = 0;
};

/// One whole response, of at most `limit` bytes (ErrorKind::corrupt beyond). `cancelled`, if any, is asked while
/// waiting.
Result<HttpResponse> fetch(HttpTransport& transport, const HttpRequest& request, size_t limit,
                           const std::function<bool()>& cancelled = nullptr);

/// TLS certificates, proxies and time limits as the settings say.
Result<std::unique_ptr<HttpTransport>> make_curl_transport(const ImportSettings& settings);

/// "registry.test:443" of a URL, for messages.
std::string authority_of(std::string_view url);
/// Whether this status may go away by itself: 408, 429, 5xx but 501.
bool is_transient_status(long status);
/// How often is a server that fails asked again? At least `retries` times, and until `patience` has passed since it
/// began to fail.
struct RetryLimits {
  unsigned retries = kLeastRetries;
  std::chrono::milliseconds patience{0};  ///< in all; each wait is short at first and about ten seconds in the end

  /// As ENROOT_TRANSFER_RETRIES says; where it says nothing, as long as a registry takes to start again, or a thousand
  /// nodes to get through.
  static RetryLimits of(const ImportSettings& settings);
  /// attempt: so many have failed, for that long. error: of the last one; null: it was a status. Of errors only a
  /// connection that was reset is worth all that patience. Nobody who listens, or no such host, is most often a slip,
  /// and worth seconds; a server that says nothing takes its time each time anyway.
  [[nodiscard]] bool reached(unsigned attempt, std::chrono::milliseconds failing, const Error* error) const;
};

/// How long to wait before the given attempt (1, 2, ...): 0.25 s doubling to 10 s, a half more or less by chance, so
/// that nodes that failed together do not come back together; never less than Retry-After, seconds or a date, where the
/// response has one, of at most two minutes.
std::chrono::milliseconds retry_delay(unsigned attempt, const HttpResponse* response);
/// "answer 503", "it cannot be reached" or "no answer". error: null where there is a status.
std::string problem_in_words(long status, const Error* error);
/// "trying again in 4 s": whole seconds, at least one.
std::string trying_again_in(std::chrono::milliseconds delay);

}  // namespace situla
