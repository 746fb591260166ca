// Can images be had from a registry, and if not, at which step does it fail? In situla_cli, not in situla_doctor: this
// needs libcurl.
#include "hooks/doctor/registry_section.hpp"

#include <algorithm>
#include <array>

#include <netdb.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/registry_client.hpp"
#include "hooks/request/mirrors.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/request/request.hpp"

namespace situla::doctor {
namespace {

constexpr uint32_t kConnectSeconds = 10;
constexpr size_t kMostAnswer = size_t{4} << 20U;
/// Asked for where the user names no repository: what a token is for does not matter then, and it need not exist.
constexpr const char* kAnyRepository = "situla/doctor";

Check failing(const std::string& name, const Error& error, const std::string& fix) {
  return check_of(name, State::fail, error, fix);
}

/// "registry.test", "registry.test/debian:12" and "registry.test#debian:12" as a reference; and whether it names an
/// image.
std::pair<std::string, bool> reference_of(std::string_view name) {
  for (const std::string_view scheme : {"docker://", "https://"})
    if (name.starts_with(scheme)) name.remove_prefix(scheme.size());
  while (name.ends_with('/')) name.remove_suffix(1);
  const size_t end = name.find_first_of("/#");
  const std::string registry(name.substr(0, end));
  if (end == std::string_view::npos) return {"docker://" + registry + "#" + kAnyRepository, false};
  return {"docker://" + registry + "#" + std::string(name.substr(end + 1)), true};
}

/// As curl reads it: "*", a host, or a domain with all hosts in it.
bool is_exempt(const std::string& host, const std::string& no_proxy) {
  std::string list = no_proxy;
  std::replace(list.begin(), list.end(), ',', ' ');
  for (std::string_view entry : split_words(list)) {
    if (entry == "*") return true;
    if (entry.starts_with('.')) entry.remove_prefix(1);
    if (host == entry ||
        (host.size() > entry.size() && host.ends_with(entry) && host[host.size() - entry.size() - 1] == '.'))
      return true;
  }
  return false;
}

/// Without the login that a proxy's URL may have.
std::string without_login(const std::string& url) {
  const size_t at = url.rfind('@');
  if (at == std::string::npos) return url;
  const size_t scheme = url.find("://");
  return (scheme == std::string::npos ? "" : url.substr(0, scheme + 3)) + url.substr(at + 1);
}

std::string proxy_for(const std::string& host, const ImportSettings& settings) {
  const std::string& proxy = settings.https_proxy.empty() ? settings.all_proxy : settings.https_proxy;
  return is_exempt(host, settings.no_proxy) ? "" : proxy;
}

Check proxy_check(const std::string& host, const ImportSettings& settings) {
  const std::string proxy = proxy_for(host, settings);
  if (!proxy.empty()) return {"proxy", State::ok, without_login(proxy), ""};
  const bool exempt = !settings.https_proxy.empty() || !settings.all_proxy.empty();
  return {"proxy", State::ok, exempt ? "none: no_proxy has " + host : "none", ""};
}

Check dns_check(const std::string& host) {
  std::string bare = host;
  std::erase_if(bare, [](char c) { return c == '[' || c == ']'; });
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(bare.c_str(), nullptr, &hints, &found);
  const ScopeExit release([&] {
    if (found != nullptr) freeaddrinfo(found);
  });
  if (status != 0)
    return {"dns", State::fail, bare + ": " + gai_strerror(status),
            "correct the name, or /etc/resolv.conf of this node; a node without a way out needs https_proxy"};
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    std::array<char, 64> text{};
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text.data());
  }
  return {"dns", State::ok, bare + " is " + join(addresses, ", "), ""};
}

std::string trusted(const ImportSettings& settings) {
  if (!settings.ssl_cert_file.empty()) return "SSL_CERT_FILE=" + settings.ssl_cert_file;
  if (!settings.ssl_cert_dir.empty()) return "SSL_CERT_DIR=" + settings.ssl_cert_dir;
  return "the system's certificates";
}

Result<HttpResponse> ask_root(HttpTransport& transport, const std::string& scheme, const std::string& registry,
                              const std::string& authorization, bool insecure) {
  HttpRequest request;
  request.url = scheme + registry + "/v2/";
  request.authorization = authorization;
  request.insecure = insecure;
  request.connect_timeout = kConnectSeconds;
  return fetch(transport, request, kMostAnswer);
}

/// Which logins there are for the registry's own host; the token server's are found when it names one.
std::string known_logins(const CredentialSet& credentials) {
  std::vector<std::string> names;
  for (const Credential& credential : credentials.all())
    if (const std::string name =
            (credential.identity_token ? "an identity token" : credential.login) + " for " + credential.host;
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  return names.empty() ? "none" : join(names, ", ");
}

/// One run against one registry.
class Examination {
 public:
  Examination(const ImportRequest& request, RegistryEndpoint endpoint, bool names_image,
              std::unique_ptr<HttpTransport> transport)
      : request_(request),
        endpoint_(std::move(endpoint)),
        names_image_(names_image),
        transport_(std::move(transport)),
        client_(*transport_, endpoint_.reference, request_.credentials, client_options()) {}

  void run(std::vector<Check>& lines) {
    const std::string host = endpoint_.reference.registry_host();
    lines.push_back(proxy_check(host, request_.settings));
    if (proxy_for(host, request_.settings).empty()) {
      lines.push_back(dns_check(host));
      if (lines.back().state == State::fail) return;
    }
    lines.push_back(connect());
    if (lines.back().state == State::fail) return;
    lines.push_back({"credentials", State::info, known_logins(request_.credentials), ""});
    lines.push_back(names_image_ ? manifest() : login());
  }

 private:
  [[nodiscard]] RegistryClient::Options client_options() const {
    RegistryClient::Options options;
    options.allow_http = request_.settings.allow_http || endpoint_.insecure;
    options.insecure = endpoint_.insecure;
    options.stands_in = endpoint_.stands_in;
    options.token_servers = request_.settings.token_servers;
    options.limits.retries = 0;
    options.connect_timeout = kConnectSeconds;
    return options;
  }

  Check connect() {
    const std::string& registry = endpoint_.reference.registry;
    auto response = ask_root(*transport_, scheme_, registry, "", endpoint_.insecure);
    if (!response && (request_.settings.allow_http || endpoint_.insecure)) {
      if (auto plain = ask_root(*transport_, "http://", registry, "", true)) {
        scheme_ = "http://";
        response = std::move(plain);
      }
    }
    if (!response)
      return failing("connection", response.error(),
                     "is the registry up, and may this node reach it? curl -v https://" + registry + "/v2/");
    first_ = std::move(*response);
    if (first_.status != 200 && first_.status != 401)
      return {"connection", State::warn, registry + " answers " + std::to_string(first_.status) + " to /v2/",
              "is it a registry? curl -v " + scheme_ + registry + "/v2/"};
    if (scheme_ == "http://" || endpoint_.insecure)
      return {"connection", State::warn, registry + " answers; no certificate vouches for it",
              "give the registry a certificate, and leave ENROOT_ALLOW_HTTP and insecure"};
    return {"connection", State::ok, "TLS, verified with " + trusted(request_.settings), ""};
  }

  Check login() {
    if (first_.status != 401) return {"login", State::ok, "the registry does not ask for one", ""};
    const auto authorized = client_.authorize(first_);
    if (!authorized) return failing("login", authorized.error(), "see situla-config(5), CREDENTIALS");
    const auto second =
        ask_root(*transport_, scheme_, endpoint_.reference.registry, client_.authorization(), endpoint_.insecure);
    if (!second) return failing("login", second.error(), "try again");
    // A token for one repository may open nothing else.
    if (second->status == 200 || (second->status == 401 && client_.authorization().starts_with("Bearer ")))
      return {"login", State::ok, "accepted; name a repository to try what it opens", ""};
    return failing("login", client_.status_error(*second, "log in to " + endpoint_.reference.registry),
                   "correct the password in ~/.config/enroot/.credentials");
  }

  Check manifest() {
    const auto resolved = client_.resolve(Platform::host());
    if (!resolved) return failing("manifest", resolved.error(), "check the name of the image");
    uint64_t bytes = 0;
    for (const Descriptor& layer : resolved->manifest.layers) bytes += layer.size;
    return {"manifest", State::ok,
            endpoint_.reference.text() + " is " + resolved->digest.text() + ", " +
                std::to_string(resolved->manifest.layers.size()) + " layers, " + format_size(bytes) + " compressed",
            ""};
  }

  const ImportRequest& request_;
  RegistryEndpoint endpoint_;
  bool names_image_;
  std::unique_ptr<HttpTransport> transport_;
  RegistryClient client_;
  std::string scheme_ = "https://";
  HttpResponse first_;
};

Result<void> examine(const std::string& name, const EnrootConfig& config, const Environment& environment, LogSink& log,
                     std::vector<Check>& lines) {
  const auto [reference, names_image] = reference_of(name);
  TRY_ASSIGN(const ImportRequest request,
             make_import_request(reference, config, environment, RuleFiles::of_user(environment), log));
  TRY_ASSIGN(const ImageReference parsed, ImageReference::parse(request.image));
  TRY_ASSIGN(std::vector<RegistryEndpoint> endpoints, endpoints_of(parsed, request.rules));
  for (RegistryEndpoint& endpoint : endpoints) {
    std::vector<Check> found;
    const std::string registry = endpoint.reference.registry;
    const bool last = registry == endpoints.back().reference.registry;
    TRY_ASSIGN(auto transport, make_curl_transport(request.settings));
    Examination(request, std::move(endpoint), names_image, std::move(transport)).run(found);
    for (Check& check : found) {
      // What a mirror lacks, the registry has.
      if (!last && check.state == State::fail) check.state = State::warn;
      if (endpoints.size() > 1) check.found = registry + ": " + check.found;
      lines.push_back(std::move(check));
    }
  }
  return {};
}

}  // namespace

Section examine_registry(const std::string& name, const EnrootConfig& config, const Environment& environment,
                         LogSink& log) {
  const KeepSecrets secrets;
  Section section{"registry", "registry " + printable(name), {}, true};
  if (const auto examined = examine(name, config, environment, log, section.lines); !examined)
    section.lines.push_back(failing("registry", examined.error(), "correct the name: REGISTRY[/REPOSITORY[:TAG]]"));
  return section;
}

}  // namespace situla::doctor
