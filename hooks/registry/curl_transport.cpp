// The only file, with curl_versions.hpp, that includes curl/curl.h.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "hooks/registry/curl_versions.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/trust_store.hpp"

namespace situla {
namespace {

constexpr long kReceiveBuffer = 256L << 10;
constexpr size_t kMostCertificates = size_t{16} << 20U;  // bytes
constexpr size_t kMaxHeaderBytes = size_t{512} << 10U;   // of one answer: redirects and trailers count

/// "http://proxy", or "" to make libcurl ignore the environment: the settings are the only source.
const std::string& proxy_for(const ImportSettings& settings, std::string_view url) {
  const std::string& own = url.starts_with("https:") ? settings.https_proxy : settings.http_proxy;
  return own.empty() ? settings.all_proxy : own;
}

struct Transfer {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  TransferHandler* handler = nullptr;
  HttpResponse head;
  std::string url, where;  ///< where: for messages
  bool local = false;      ///< over a socket of this machine
  bool* speaks_tls = nullptr;
  std::array<char, CURL_ERROR_SIZE> detail{};
  size_t header_bytes = 0;
  uint32_t stall_rate = 0, stall_timeout = 0;
  bool head_ended = false, head_told = false, stopped = false;

  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }

  Flow tell_head() {
    if (head_told) return Flow::go_on;
    head_told = true;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &head.status);
    return handler->on_head(head);
  }
};

size_t header_callback(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  transfer.header_bytes += size * count;
  if (transfer.header_bytes > kMaxHeaderBytes) return 0;
  if (transfer.head_told) return size * count;  // trailers
  const std::string_view line = trim({data, size * count});
  if (line.starts_with("HTTP/")) {
    transfer.head.headers.clear();  // of an interim response or of a redirect
    transfer.head_ended = false;
  } else if (line.empty()) {
    transfer.head_ended = true;
  } else if (transfer.head_ended) {
    return size * count;  // the trailers of an empty body
  } else if (const auto parts = cut(line, ':')) {
    transfer.head.headers.emplace_back(to_lower(trim(parts->first)), std::string(trim(parts->second)));
  }
  return size * count;
}

size_t write_callback(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  Flow flow = transfer.tell_head();
  if (flow == Flow::go_on) flow = transfer.handler->on_data({data, size * count});
  if (flow == Flow::pause) return CURL_WRITEFUNC_PAUSE;
  if (flow == Flow::go_on) return size * count;
  transfer.stopped = true;
  return 0;
}

/// "Failed to connect to HOST port PORT after 0 ms: ..." -> HOST:PORT, when HOST is not the one that was to be reached.
std::optional<std::string> proxy_in(std::string_view detail, const std::string& where) {
  constexpr std::string_view kStart = "Failed to connect to ";
  if (!detail.starts_with(kStart)) return std::nullopt;
  const auto words = split_words(detail.substr(kStart.size()));
  if (words.size() < 3 || words[1] != "port" || where == words[0] || where.starts_with(std::string(words[0]) + ":") ||
      where.starts_with("[" + std::string(words[0]) + "]"))
    return std::nullopt;
  const std::string_view port = words[2].substr(0, words[2].find(':'));  // "PORT: ..." before libcurl 7.78
  return printable(words[0]) + ":" + printable(port);
}

Error connect_error(const Transfer& transfer, const std::string& where) {
  const auto proxy = proxy_in(transfer.detail.data(), where);
  const std::string what = proxy ? "connect to the proxy " + *proxy + " for " + where : "connect to " + where;
  long errnum = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_OS_ERRNO, &errnum);
  const Error error = errnum != 0 ? Error::from_errno(static_cast<int>(errnum), what)
                                  : Error(ErrorKind::failure, what + ": " + printable(transfer.detail.data()));
  return Error(ErrorKind::unreachable, error.message())
      .with_code(ErrorCode::registry_unreachable)
      .with_hint(proxy ? "check https_proxy and no_proxy"
                       : "check the registry's name and port, and that it can be reached from this node");
}

/// What a proxy answered to CONNECT; 0: nothing, or there is none.
long refused_tunnel(const Transfer& transfer) {
  long status = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_HTTP_CONNECTCODE, &status);
  return status >= 300 ? status : 0;
}

Error tunnel_error(long status, const std::string& where) {
  const std::string message = "connect to " + where + ": the proxy refuses (" + std::to_string(status) + ")";
  if (status >= 500)
    return Error(ErrorKind::network, message)
        .with_code(ErrorCode::registry_unreachable)
        .with_hint("the proxy may not reach it: ask its operators, or see no_proxy");
  return Error(ErrorKind::failure, message)
      .with_code(ErrorCode::registry_unreachable)
      .with_hint(status == 407 ? "https_proxy must hold a login: http://USER:PASSWORD@HOST:PORT"
                               : "ask the operators of the proxy, or add the host to no_proxy");
}

Error certificate_error(const Transfer& transfer, const std::string& where) {
  std::string_view detail = transfer.detail.data();
  constexpr std::string_view kPrefix = "SSL certificate problem: ";
  if (detail.starts_with(kPrefix)) detail.remove_prefix(kPrefix.size());
  const bool of_another_time = detail.find("not yet valid") != detail.npos || detail.find("has expired") != detail.npos;
  return Error(ErrorKind::failure, "verify the certificate of " + where + ": " + printable(detail))
      .with_code(ErrorCode::registry_certificate)
      .with_hint(of_another_time
                     ? "look at this node's clock (date); if it is right, the registry's operators must renew it"
                     : "install the registry's CA on this node, or set SSL_CERT_FILE to a bundle that has it");
}

/// A connection that broke while TLS was begun has said nothing of what the other end speaks.
bool broke_in_handshake(const Transfer& transfer) {
  long errnum = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_OS_ERRNO, &errnum);
  if (errnum == ECONNRESET || errnum == EPIPE) return true;
  const std::string_view detail = transfer.detail.data();
  constexpr std::array<std::string_view, 5> kWords = {"SSL_ERROR_SYSCALL", "onnection reset", "unexpected eof",
                                                      "Recv failure", "Send failure"};
  return std::any_of(kWords.begin(), kWords.end(),
                     [&](std::string_view word) { return detail.find(word) != std::string_view::npos; });
}

/// The errno's kind is kept: whoever asked knows what the socket is.
Error describe_local(CURLcode code, const Transfer& transfer, const std::string& detail) {
  long errnum = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_OS_ERRNO, &errnum);
  if (code == CURLE_COULDNT_CONNECT && errnum != 0)
    return Error::from_errno(static_cast<int>(errnum), "connect to " + transfer.where);
  return {ErrorKind::failure, "talk to " + transfer.where + ": " + detail};
}

Error too_slow(const Transfer& transfer, const std::string& where) {
  return Error(ErrorKind::network, where + ": brings fewer than " + std::to_string(transfer.stall_rate) +
                                       " bytes per second for " + std::to_string(transfer.stall_timeout) + " s")
      .with_code(ErrorCode::registry_unreachable)
      .with_hint("for a slower network set ENROOT_STALL_RATE to less, or ENROOT_STALL_TIMEOUT to more");
}

/// Closed by the other end, or on the way, before there was an answer or in the middle of one.
bool was_reset(CURLcode code, const Transfer& transfer, const std::string& detail) {
  if (code == CURLE_GOT_NOTHING) return true;
  long number = 0;
  curl_easy_getinfo(transfer.easy, CURLINFO_OS_ERRNO, &number);
  const auto told = [&](int errnum) {  // through TLS only in words
    return number == errnum || detail.find("errno " + std::to_string(errnum)) != std::string::npos;
  };
  return told(ECONNRESET) || told(EPIPE) || told(ECONNABORTED);
}

/// What a failed transfer means to the user. ErrorKind::network only where trying again may help.
Error describe(CURLcode code, const Transfer& transfer) {
  if (transfer.header_bytes > kMaxHeaderBytes)
    return Error(ErrorKind::corrupt,
                 transfer.where + ": sends more than " + format_size(kMaxHeaderBytes) + " of headers")
        .with_code(ErrorCode::registry_answer);
  if (certificate_refused(code)) code = CURLE_PEER_FAILED_VERIFICATION;
  const std::string detail = transfer.detail[0] != '\0' ? printable(transfer.detail.data()) : curl_easy_strerror(code);
  if (transfer.local) return describe_local(code, transfer, detail);
  const char* last = nullptr;  // where redirects led
  curl_easy_getinfo(transfer.easy, CURLINFO_EFFECTIVE_URL, &last);
  std::string where = authority_of(last != nullptr ? last : "");
  if (where.empty()) where = transfer.where;
  if (const long status = refused_tunnel(transfer); status != 0) return tunnel_error(status, where);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return Error(ErrorKind::unreachable, "resolve host " + where + ": unknown host")
          .with_code(ErrorCode::registry_unreachable)
          .with_hint("check the spelling of the registry; a name without a registry is looked for on Docker Hub");
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Error(ErrorKind::unreachable, "resolve the proxy for " + where + ": unknown host")
          .with_code(ErrorCode::registry_unreachable)
          .with_hint("check https_proxy");
    case CURLE_COULDNT_CONNECT:
      return connect_error(transfer, where);
    case CURLE_PEER_FAILED_VERIFICATION:
      return certificate_error(transfer, where);
    case CURLE_SSL_CACERT_BADFILE:
      return Error(ErrorKind::denied, "read the CA certificates for " + where + ": " + detail)
          .with_code(ErrorCode::registry_certificate)
          .with_hint("SSL_CERT_FILE and SSL_CERT_DIR must hold certificates in PEM form");
    case CURLE_SSL_CONNECT_ERROR:
      if (broke_in_handshake(transfer))
        return Error(ErrorKind::network, where + ": the connection broke while TLS was begun (" + detail + ")")
            .with_code(ErrorCode::registry_unreachable)
            .with_hint("try again; for a registry without TLS set ENROOT_ALLOW_HTTP=yes");
      return Error(ErrorKind::unsupported, "start TLS with " + where + ": " + detail)
          .with_code(ErrorCode::registry_answer)
          .with_hint("for a registry without TLS set ENROOT_ALLOW_HTTP=yes");
    case CURLE_OPERATION_TIMEDOUT:
      if (detail.starts_with("Operation too slow")) return too_slow(transfer, where);
      return Error(ErrorKind::network, where + ": no answer in time (" + detail + ")")
          .with_code(ErrorCode::registry_unreachable);
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: {
      const std::string message = where + ": the connection broke (" + detail + ")";
      // Its errno says that it is worth some patience. An answer that breaks off, or is none, may do so each time.
      return (was_reset(code, transfer, detail) ? Error::from_errno(ECONNRESET, "").in_words(message)
                                                : Error(ErrorKind::network, message))
          .with_code(ErrorCode::registry_unreachable)
          .with_hint("the registry or a proxy in between closed it each time; try again, or ask its operators");
    }
    case CURLE_WRITE_ERROR:
      return Error(ErrorKind::corrupt,
                   where + ": the headers of its answer have more than " + format_size(kMaxHeaderBytes))
          .with_code(ErrorCode::registry_answer);
    case CURLE_OUT_OF_MEMORY:
      return Error(ErrorKind::no_space, "talk to " + where + ": out of memory, or a header longer than libcurl takes")
          .with_code(ErrorCode::memory);
    default:
      return {ErrorKind::failure, "talk to " + where + ": " + detail};
  }
}

/// The bundle that libcurl reads by itself; old releases do not say which.
std::string certificates_of_node() {
  const char* built = built_in_bundle();
  for (const char* path : {built != nullptr ? built : "", "/etc/ssl/certs/ca-certificates.crt",
                           "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"})
    if (const auto text = *path == '\0' ? std::string() : read_file(path, kMostCertificates).value_or("");
        !text.empty())
      return text + "\n";
  return {};
}

/// Others have no way to be asked for one certificate.
bool is_of_openssl() {
  const char* name = curl_version_info(CURLVERSION_NOW)->ssl_version;
  return name != nullptr && std::string_view(name).starts_with("OpenSSL");
}

class CurlTransport final : public HttpTransport {
 public:
  CurlTransport(const ImportSettings& settings, UniqueFd own_certificates, CURLM* multi, Bell bell)
      : settings_(settings), own_certificates_(std::move(own_certificates)), multi_(multi), bell_(std::move(bell)) {
    // Streams of one HTTP/2 connection share one TCP window and one TLS state; several connections are what makes a
    // pull scale.
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
  }
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;
  ~CurlTransport() override {
    for (const auto& [id, transfer] : transfers_) curl_multi_remove_handle(multi_, transfer->easy);
    transfers_.clear();
    curl_multi_cleanup(multi_);
  }

  Result<TransferId> start(const HttpRequest& request, TransferHandler& handler) override {
    auto transfer = std::make_unique<Transfer>();
    transfer->handler = &handler;
    transfer->url = request.url;
    transfer->speaks_tls = request.speaks_tls;
    transfer->local = !request.unix_socket.empty();
    transfer->where = transfer->local ? printable(request.unix_socket) : authority_of(request.url);
    transfer->easy = curl_easy_init();
    if (transfer->easy == nullptr)
      return fail(Error(ErrorKind::no_space, "start a transfer: out of memory").with_code(ErrorCode::memory));
    const TransferId id = ++last_id_;
    if (!configure(*transfer, request)) return fail(ErrorKind::unsupported, "limit libcurl to http and https");
    TRY(add_headers(*transfer, request));
    curl_easy_setopt(transfer->easy, CURLOPT_PRIVATE, transfer.get());
    if (const CURLMcode code = curl_multi_add_handle(multi_, transfer->easy); code != CURLM_OK)
      return fail(ErrorKind::failure, std::string("start a transfer: ") + curl_multi_strerror(code));
    transfers_.emplace(id, std::move(transfer));
    return id;
  }

  void resume(TransferId id) override {
    if (const auto found = transfers_.find(id); found != transfers_.end())
      curl_easy_pause(found->second->easy, CURLPAUSE_CONT);
  }

  void cancel(TransferId id) override {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) return;
    curl_multi_remove_handle(multi_, found->second->easy);
    transfers_.erase(found);
  }

  Result<void> poll(std::chrono::milliseconds time) override {
    int running = 0;
    CURLMcode code = curl_multi_perform(multi_, &running);
    if (code == CURLM_OK && !finish_transfers()) code = bell_.wait(multi_, time);
    if (code == CURLM_OK) code = curl_multi_perform(multi_, &running);
    if (code != CURLM_OK)
      return fail(ErrorKind::failure, std::string("wait for the network: ") + curl_multi_strerror(code));
    finish_transfers();
    return {};
  }

  void wake() override { bell_.ring(); }

 private:
  /// False: libcurl did not take the limit of protocols, without which a redirect could lead to anything that it
  /// speaks.
  [[nodiscard]] bool configure(Transfer& transfer, const HttpRequest& request) {
    CURL* easy = transfer.easy;
    curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "situla");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
    if (transfer.local) return configure_local(transfer, request);
    if (request.head) curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (request.range) {
      const std::string range = std::to_string(request.range->first) + "-" + std::to_string(request.range->second);
      curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
    }
    if (!set_redirects(easy, request.insecure)) return false;
    if (!request.form.empty()) {
      curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.form.size()));
      curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request.form.c_str());
      // A 307 would have libcurl send the body, which holds a secret, to wherever the redirect leads.
      curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    }
    set_times(transfer, request);
    if (request.connect_timeout != 0) {
      // 0: no limit of the user's, which for libcurl is one of 300 s.
      const uint32_t own = settings_.connect_timeout == 0 ? request.connect_timeout : settings_.connect_timeout;
      curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(std::min(request.connect_timeout, own)));
    }
    set_certificates(easy);
    if (request.insecure) {
      curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
      curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    curl_easy_setopt(easy, CURLOPT_PROXY, proxy_for(settings_, request.url).c_str());
    curl_easy_setopt(easy, CURLOPT_NOPROXY, settings_.no_proxy.c_str());
    set_callbacks(transfer);
    return true;
  }

  /// A server of this machine may think for minutes before its first byte.
  static bool configure_local(Transfer& transfer, const HttpRequest& request) {
    CURL* easy = transfer.easy;
    curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request.unix_socket.c_str());
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    set_callbacks(transfer);
    return limit_protocols(easy, Protocols::http);
  }

  static void set_callbacks(Transfer& transfer) {
    curl_easy_setopt(transfer.easy, CURLOPT_HEADERFUNCTION, header_callback);
    curl_easy_setopt(transfer.easy, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(transfer.easy, CURLOPT_WRITEFUNCTION, write_callback);
    curl_easy_setopt(transfer.easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(transfer.easy, CURLOPT_ERRORBUFFER, transfer.detail.data());
  }

  /// As header lines, and not as CURLOPT_XOAUTH2_BEARER or CURLOPT_USERPWD, because their form is the registry client's
  /// business. libcurl drops Authorization when a redirect leads to another host, port or scheme
  /// (CURLOPT_UNRESTRICTED_AUTH is off).
  static Result<void> add_headers(Transfer& transfer, const HttpRequest& request) {
    if (!request.accept.empty()) TRY(add_header(transfer, "Accept", request.accept));
    if (!request.authorization.empty()) TRY(add_header(transfer, "Authorization", request.authorization));
    curl_easy_setopt(transfer.easy, CURLOPT_HTTPHEADER, transfer.headers);
    return {};
  }

  /// libcurl sends the line as it is: a line end in it would begin another header, or another request.
  static Result<void> add_header(Transfer& transfer, const std::string& name, const std::string& value) {
    if (value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      return fail(ErrorKind::corrupt, "ask " + transfer.where + ": the value of the header " + name +
                                          " has a line end or a zero byte in it");
    curl_slist* longer = curl_slist_append(transfer.headers, (name + ": " + value).c_str());
    if (longer == nullptr)
      return fail(Error(ErrorKind::no_space, "start a transfer: out of memory").with_code(ErrorCode::memory));
    transfer.headers = longer;
    return {};
  }

  [[nodiscard]] bool set_redirects(CURL* easy, bool insecure) const {
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 10L);
    return limit_protocols(easy, settings_.allow_http || insecure ? Protocols::both : Protocols::https);
  }

  /// A server that gives a byte now and then is no stalled one: an answer of known small size has a limit as a whole.
  void set_times(Transfer& transfer, const HttpRequest& request) const {
    CURL* easy = transfer.easy;
    transfer.stall_rate = std::max(settings_.stall_rate, 1U);
    transfer.stall_timeout = settings_.stall_timeout;
    uint32_t limit = settings_.transfer_timeout;
    if (request.at_once)
      limit = request.time_limit;
    else if (limit == 0 && request.time_limit != 0)
      limit = std::max(request.time_limit, settings_.stall_timeout) + settings_.connect_timeout;
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.connect_timeout));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, static_cast<long>(limit));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(transfer.stall_rate));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(transfer.stall_timeout));
  }

  /// libcurl would parse the whole bundle, which takes tens of milliseconds.
  void set_certificates(CURL* easy) {
    if (is_of_openssl() && curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, trust_callback) == CURLE_OK) {
      curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, this);
      curl_easy_setopt(easy, CURLOPT_CAINFO, nullptr);
    } else if (own_certificates_) {
      curl_easy_setopt(easy, CURLOPT_CAINFO, fd_path(own_certificates_.get()).c_str());
    }
    // The node's own directory of hashes, of which libcurl reads what it needs, counts beside the node's bundle.
    if (own_certificates_) curl_easy_setopt(easy, CURLOPT_CAPATH, nullptr);
  }

  /// For each connection.
  static CURLcode trust_callback(CURL*, void* context, void* user) {
    auto& self = *static_cast<CurlTransport*>(user);
    if (!self.trust_) {
      const int own = self.own_certificates_.get();
      self.trust_.emplace(own >= 0 ? read_file(fd_path(own), kMostCertificates).value_or("") : certificates_of_node());
    }
    return self.trust_->add_to(context) ? CURLE_OK : CURLE_OUT_OF_MEMORY;
  }

  /// Handlers may start transfers from on_end().
  bool finish_transfers() {
    bool any = false;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      any = true;
      const CURLcode code = message->data.result;
      char* user = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
      auto& transfer = *reinterpret_cast<Transfer*>(user);
      finish(code, transfer);
    }
    return any;
  }

  void finish(CURLcode code, Transfer& transfer) {
    Result<void> result;
    if (transfer.stopped)
      result = fail(ErrorKind::cancelled, "stopped");
    else if (code != CURLE_OK)
      result = fail(describe(code, transfer));
    else
      transfer.tell_head();
    double tls_begun = 0;  // seconds
    if (transfer.speaks_tls != nullptr &&
        curl_easy_getinfo(transfer.easy, CURLINFO_APPCONNECT_TIME, &tls_begun) == CURLE_OK)
      *transfer.speaks_tls = tls_begun > 0;
    curl_multi_remove_handle(multi_, transfer.easy);
    TransferHandler& handler = *transfer.handler;
    for (auto it = transfers_.begin(); it != transfers_.end(); ++it) {
      if (it->second.get() != &transfer) continue;
      transfers_.erase(it);
      break;
    }
    handler.on_end(std::move(result));
  }

  ImportSettings settings_;
  UniqueFd own_certificates_;  ///< what the user brought, by descriptor: libcurl reads files
  CURLM* multi_;
  Bell bell_;
  std::optional<TrustStore> trust_;
  TransferId last_id_ = 0;
  std::map<TransferId, std::unique_ptr<Transfer>> transfers_;
};

}  // namespace

Result<std::unique_ptr<HttpTransport>> make_curl_transport(const ImportSettings& settings) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  UniqueFd certificates;
  if (const TrustAnchors& trust = settings.trust; !trust.pem.empty()) {
    const std::string nodes = trust.with_nodes ? certificates_of_node() : "";
    TRY_ASSIGN(certificates, sealed_memory("certificates", nodes + trust.pem));
  }
  CURLM* multi = curl_multi_init();
  if (multi == nullptr)
    return fail(Error(ErrorKind::no_space, "start the HTTP client: out of memory").with_code(ErrorCode::memory));
  Bell bell;
  if (!bell.ready()) {
    const int errnum = errno;
    curl_multi_cleanup(multi);
    return fail_errno(errnum, "start the HTTP client");
  }
  return std::make_unique<CurlTransport>(settings, std::move(certificates), multi, std::move(bell));
}

}  // namespace situla
