#include "hooks/registry/registry_client.hpp"

#include <algorithm>
#include <thread>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/squashfs/budget.hpp"

namespace situla {
namespace {

constexpr size_t kMaxProbeBytes = size_t{1} << 20U;
constexpr size_t kMaxTokenBytes = size_t{1} << 20U;
constexpr size_t kMaxTagsBytes = size_t{4} << 20U;  // of one page
constexpr size_t kMostTags = 100000;
constexpr uint32_t kImpatientSeconds = 5;
constexpr std::chrono::seconds kUnusualWait{3};
constexpr uint32_t kLongestAnswer = 120;  // seconds for a manifest, a token or a configuration

std::string login_hint(const std::string& host) {
  return "add the line 'machine " + host +
         " login USER password PASSWORD' to ~/.config/enroot/.credentials, or log in " +
         "to the registry with docker or podman";
}

/// Of "</v2/x/tags/list?last=a&n=1000>; rel=\"next\"" (RFC 8288) what follows the path; the rest is known, and nobody
/// is sent anywhere else.
std::optional<std::string> next_page(const HttpResponse& response, const std::string& path) {
  for (const std::string& link : response.all("link")) {
    const size_t end = link.find('>');
    if (!link.starts_with('<') || end == std::string::npos || link.find("rel=\"next\"", end) == std::string::npos)
      continue;
    const std::string_view target = std::string_view(link).substr(1, end - 1);
    const size_t query = target.find('?');
    if (query != std::string_view::npos && target.substr(0, query).ends_with(path))
      return std::string(target.substr(query));
  }
  return std::nullopt;
}

}  // namespace

RegistryClient::RegistryClient(HttpTransport& transport, ImageReference reference, const CredentialSet& credentials,
                               Options options)
    : transport_(transport), reference_(std::move(reference)), credentials_(credentials), options_(std::move(options)) {
  if (options_.sleep) return;
  options_.sleep = [cancelled = options_.cancelled](std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end && !(cancelled && cancelled()))
      std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(100)));
  };
}

HttpRequest RegistryClient::request_to(std::string url) const {
  HttpRequest request;
  // A token server need not be the registry: nothing was said about its certificate.
  request.insecure = options_.insecure && authority_of(url) == authority_of(reference_.registry);
  request.url = std::move(url);
  request.connect_timeout = options_.impatient ? kImpatientSeconds : options_.connect_timeout;
  request.time_limit = options_.impatient ? kImpatientSeconds : kLongestAnswer;
  request.at_once = options_.impatient;
  return request;
}

HttpRequest RegistryClient::blob_request(const Digest& digest) const {
  HttpRequest request = request_to(base_url() + "/blobs/" + digest.text());
  request.time_limit = 0;  // layers are of any size
  request.authorization = authorization_;
  return request;
}

/// With ENROOT_ALLOW_HTTP a registry may be without TLS: found out once, before anything secret is sent.
Result<void> RegistryClient::choose_scheme() {
  if (!options_.allow_http || scheme_chosen_) return {};
  scheme_chosen_ = true;
  HttpRequest request = request_to("https://" + reference_.registry + "/v2/");
  bool speaks_tls = false;
  request.speaks_tls = &speaks_tls;
  const auto begun = std::chrono::steady_clock::now();
  auto response = fetch(transport_, request, kMaxProbeBytes, options_.cancelled);
  // A login would go the same way in clear: not because a registry with TLS was slow, or is somebody else's.
  if (response || speaks_tls) return {};
  const ErrorKind kind = response.error().kind();
  const bool late = kind == ErrorKind::network && options_.impatient &&
                    std::chrono::steady_clock::now() - begun >= std::chrono::seconds(kImpatientSeconds);
  if (kind == ErrorKind::unsupported || (kind == ErrorKind::network && !late) || kind == ErrorKind::unreachable)
    scheme_ = "http://";
  return {};
}

Result<HttpResponse> RegistryClient::get_with_retries(const HttpRequest& request, size_t limit) {
  std::chrono::milliseconds failing{0};
  for (unsigned attempt = 1;; ++attempt) {
    const auto begun = std::chrono::steady_clock::now();
    auto response = fetch_telling(request, limit, attempt);
    failing += std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    const Error* const error = response ? nullptr : &response.error();
    const bool transient = response ? is_transient_status(response->status)
                                    : error->kind() == ErrorKind::unreachable || error->kind() == ErrorKind::network;
    if (!transient || options_.impatient || options_.limits.reached(attempt, failing, error)) return response;
    const auto delay = retry_delay(attempt, response ? &*response : nullptr);
    tell_waiting(problem_in_words(response ? response->status : 0, error) + ", " + trying_again_in(delay));
    options_.sleep(delay);
    failing += delay;
    tell_waiting("");
  }
}

/// Whoever waits long hears of it meanwhile.
Result<HttpResponse> RegistryClient::fetch_telling(const HttpRequest& request, size_t limit, unsigned attempt) {
  const auto begun = std::chrono::steady_clock::now();
  const std::string which = attempt > 1 ? ", attempt " + std::to_string(attempt) : "";
  auto response = fetch(transport_, request, limit, [&] {
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited >= kUnusualWait)
      tell_waiting("no answer for " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
                   " s" + which);
    return options_.cancelled && options_.cancelled();
  });
  tell_waiting("");
  return response;
}

void RegistryClient::tell_waiting(const std::string& why) const {
  if (options_.waiting) options_.waiting(why);
}

Result<HttpResponse> RegistryClient::get(const std::string& url, std::string_view accept, const std::string& what,
                                         size_t limit, const char* limit_key) {
  HttpRequest request = request_to(url);
  request.limit_key = limit_key;
  request.accept = accept;
  request.authorization = authorization_;
  auto response = get_with_retries(request, limit);
  // Also with authorization: a token may have expired while another import of the image was waited for.
  if (response && response->status == 401) {
    TRY(authorize(*response));
    request.authorization = authorization_;
    response = get_with_retries(request, limit);
  }
  if (!response) return fail(std::move(response).error());
  if (response->status != 200) return fail(status_error(*response, what));
  return response;
}

Result<void> RegistryClient::authorize(const HttpResponse& response) {
  const auto challenge = choose_challenge(response.all("www-authenticate"));
  if (!challenge)
    return fail(
        Error(ErrorKind::unsupported, reference_.registry + ": asks for a login, but offers neither Basic nor Bearer")
            .with_code(ErrorCode::registry_answer));
  return challenge->scheme == "basic" ? authorize_basic() : authorize_bearer(*challenge);
}

Result<void> RegistryClient::authorize_basic() {
  const std::string host = reference_.registry_host();
  const Credential* credential = credentials_.find(host, reference_.user);
  if (credential == nullptr) credential = credentials_.find_registry(reference_.registry, reference_.user);
  if (credential == nullptr || credential->identity_token) {
    const std::string who = reference_.user.empty() ? "" : " for the user " + printable(reference_.user);
    return fail(
        Error(ErrorKind::denied, reference_.registry + ": login needed, but there are no credentials" + who + " (401)")
            .with_code(ErrorCode::registry_login)
            .with_hint(login_hint(host)));
  }
  HttpRequest request = request_to(asking().base_url);
  TRY(LoginFor::itself(asking()).add(*credential, request));
  login_ = credential->login;
  authorization_ = std::move(request.authorization);
  return {};
}

AskingRegistry RegistryClient::asking() const {
  return {reference_.registry, verified(), scheme_ + reference_.registry};
}

/// Its own: of Docker's files for this registry, of a mirror's own host, or the very login that is written for the
/// registry's host as well.
SecretOf RegistryClient::owner_of(const Credential& credential) const {
  if (options_.stands_in || credential.scope == Credential::Scope::registry) return SecretOf::registry;
  const Credential* own = credentials_.find(reference_.registry_host(), credential.login);
  const bool same = own != nullptr && own->login == credential.login && own->password == credential.password;
  return same ? SecretOf::registry : SecretOf::token_server;
}

/// The scope is our own, and so is the service where it is known. Only where the registry is its own token server may
/// it have words of its own for the scope.
Result<HttpRequest> RegistryClient::token_request(const Challenge& challenge, const Credential* credential) const {
  const std::string realm = challenge.parameter("realm");
  RealmRules rules{options_.allow_http, place_of(realm) == place_of(asking().base_url)};
  std::string scope = "repository:" + reference_.repository + ":pull";
  if (rules.of_registry && !challenge.parameter("scope").empty()) scope = challenge.parameter("scope");
  if (credential == nullptr) {
    TRY_ASSIGN(std::string url, token_url(challenge, scope, "", rules));
    return request_to(std::move(url));
  }
  TRY_ASSIGN(const LoginFor login,
             LoginFor::token_server(asking(), realm, owner_of(*credential), options_.token_servers));
  rules.service = login.service();
  if (credential->identity_token) {
    TRY_ASSIGN(TokenPost post, token_post(challenge, scope, credential->password, rules));
    HttpRequest request = request_to(std::move(post.url));
    TRY(login.add_form(std::move(post.body), request));
    return request;
  }
  TRY_ASSIGN(std::string url, token_url(challenge, scope, credential->login, rules));
  HttpRequest request = request_to(std::move(url));
  TRY(login.add(*credential, request));
  return request;
}

/// COMPAT.md 3: from .credentials those of the token realm's host; whether that server may be asked for this registry
/// is LoginFor's to say. Those of Docker's files are meant for the registry and for whatever token server it names. A
/// mirror that names the origin's token server would get a token of this user's for the origin: it has to do with its
/// own login.
const Credential* RegistryClient::credential_for(const std::string& realm_host) const {
  const Credential* credential =
      credentials_.find(options_.stands_in ? reference_.registry_host() : realm_host, reference_.user);
  return credential != nullptr ? credential : credentials_.find_registry(reference_.registry, reference_.user);
}

Result<void> RegistryClient::authorize_bearer(const Challenge& challenge) {
  const std::string host = host_of_url(challenge.parameter("realm"));
  const Credential* credential = credential_for(host);
  if (credential == nullptr && !reference_.user.empty())
    return fail(Error(ErrorKind::denied, reference_.registry + ": no credentials for the user " +
                                             printable(reference_.user) + " at " + excerpt(host) + ", its token server")
                    .with_code(ErrorCode::registry_login)
                    .with_hint(login_hint(excerpt(host))));
  TRY_ASSIGN(const HttpRequest request, token_request(challenge, credential));
  login_ = credential == nullptr ? "" : credential->login;
  const bool by_identity = credential != nullptr && credential->identity_token;
  TRY_ASSIGN(const HttpResponse response, get_with_retries(request, kMaxTokenBytes));
  const std::string where = "token server " + authority_of(request.url);
  if (response.status == 401 || response.status == 403) {
    std::string who = login_.empty() ? "an anonymous user" : "the password of " + printable(login_);
    if (by_identity) who = "the identity token";
    return fail(
        Error(ErrorKind::denied, where + ": refuses " + who + " (" + std::to_string(response.status) + ")")
            .with_code(ErrorCode::registry_login)
            .with_hint(login_.empty() && !by_identity
                           ? login_hint(excerpt(host))
                           : "it is wrong or no longer valid: look at ~/.config/enroot/.credentials, and at the "
                             "logins of docker and podman"));
  }
  if (response.status != 200)
    return fail(
        Error(is_transient_status(response.status) ? ErrorKind::network : ErrorKind::failure,
              where + ": answers " + std::to_string(response.status))
            .with_code(is_transient_status(response.status) ? ErrorCode::registry_busy : ErrorCode::registry_answer));
  const std::string token = parse_token(response.body);
  if (token.empty())
    return fail(Error(ErrorKind::corrupt, where + ": its answer has no token").with_code(ErrorCode::registry_answer));
  if (!is_plain_token(token))
    return fail(Error(ErrorKind::corrupt, where + ": its token has other than plain characters")
                    .with_code(ErrorCode::registry_answer));
  authorization_ = "Bearer " + token;
  return {};
}

Error RegistryClient::status_error(const HttpResponse& response, const std::string& what) const {
  const RegistryError detail = parse_registry_error(response.body);
  const std::string said = detail.message.empty() ? "" : ", the registry says: " + detail.message;
  const std::string host = reference_.registry_host();
  switch (response.status) {
    case 401:
      if (!login_.empty())
        return Error(ErrorKind::denied, what + ": the login as " + printable(login_) + " is refused (401)" + said)
            .with_code(ErrorCode::registry_login)
            .with_hint("check the password of " + printable(login_) +
                       " in ~/.config/enroot/.credentials, and the image name");
      return Error(ErrorKind::denied, what + ": login needed, or no such image (401)" + said)
          .with_code(ErrorCode::registry_login)
          .with_hint(login_hint(host) + ", and check the image name");
    case 403:
      return Error(ErrorKind::denied, what + ": access is forbidden (403)" + said)
          .with_code(ErrorCode::registry_login)
          .with_hint(login_.empty()
                         ? login_hint(host)
                         : "ask for access for the user " + printable(login_) + ", and check the image name");
    case 404: {
      if (detail.code == "BLOB_UNKNOWN" || what.starts_with("fetch"))
        return Error(ErrorKind::not_found, what + ": the registry does not have it (404)" + said)
            .with_code(ErrorCode::image_damaged)
            .with_hint("the image in the registry is incomplete: push it again");
      const bool name = detail.code == "NAME_UNKNOWN";
      std::string hint = name ? "check the spelling of the image name"
                              : "check the image name and the tag: 'situla tags IMAGE' lists those there are";
      if (const std::string_view repository = reference_.repository; repository.starts_with("library/"))
        if (const std::string meant = meant_scheme(std::string(repository.substr(8)) + ":" + reference_.tag);
            !meant.empty())
          hint = meant;
      return Error(ErrorKind::not_found,
                   what + (name ? ": no such image in this registry (404)" : ": not found (404)") + said)
          .with_code(ErrorCode::image_not_found)
          .with_hint(hint);
    }
    case 429:
      return Error(ErrorKind::network, what + ": too many requests (429)" + said)
          .with_code(ErrorCode::registry_busy)
          .with_hint("wait some minutes, or log in: registries allow more to known users");
    default:
      break;
  }
  if (response.status >= 500)
    return Error(ErrorKind::network, what + ": the registry failed (" + std::to_string(response.status) + ")" + said)
        .with_code(ErrorCode::registry_busy)
        .with_hint("the trouble is on the registry's side; try again later");
  return Error(ErrorKind::failure, what + ": unexpected status " + std::to_string(response.status) + said)
      .with_code(ErrorCode::registry_answer);
}

/// {body, content type}. The digest is checked against what was asked for, else against what the registry says it sent.
Result<std::pair<std::string, std::string>> RegistryClient::get_manifest(const std::string& name,
                                                                         const std::optional<Digest>& expected) {
  TRY_ASSIGN(HttpResponse response, get(base_url() + "/manifests/" + name, kManifestTypes, "manifest",
                                        options_.budget.manifest_size, "manifest_size"));
  std::string type = response.header("content-type").value_or("");
  if (is_schema1(type)) return fail(schema1_error());
  const Digest actual = digest_of(response.body);
  std::string wanted = expected ? expected->text() : response.header("docker-content-digest").value_or("");
  if (!wanted.starts_with("sha256:")) wanted = actual.text();
  if (wanted != actual.text())
    return fail(Error(ErrorKind::corrupt,
                      "manifest: its content has the digest " + actual.text() + " instead of " + excerpt(wanted))
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the registry, or a proxy on the way, serves damaged data"));
  return std::pair(std::move(response.body), std::move(type));
}

Result<ResolvedImage> RegistryClient::resolve(const Platform& platform) {
  TRY(choose_scheme());
  TRY_ASSIGN(auto answer, get_manifest(reference_.manifest_name(), reference_.digest));
  TRY_ASSIGN(auto parsed, parse_manifest(answer.first, answer.second));
  const Digest named = digest_of(answer.first);
  if (options_.known && named == options_.known->named) {
    ResolvedImage known{options_.known->manifest, {}};
    known.is_known = true;
    known.named = named;
    return known;
  }
  constexpr int kMostNesting = 4;
  for (int depth = 0; depth < kMostNesting && std::holds_alternative<Index>(parsed); ++depth) {
    TRY_ASSIGN(const Descriptor chosen, choose_platform(std::get<Index>(parsed), platform));
    TRY_ASSIGN(answer, get_manifest(chosen.digest.text(), chosen.digest));
    TRY_ASSIGN(parsed, parse_manifest(answer.first, answer.second));
  }
  Manifest* manifest = std::get_if<Manifest>(&parsed);
  if (manifest == nullptr) return fail(ErrorKind::corrupt, "manifest: indexes inside indexes");
  const Digest digest = digest_of(answer.first);
  ResolvedImage image{digest, std::move(*manifest), std::move(answer.second), std::move(answer.first)};
  image.named = named;
  return image;
}

Result<Digest> RegistryClient::named_digest() {
  TRY(choose_scheme());
  TRY_ASSIGN(const auto answer, get_manifest(reference_.manifest_name(), reference_.digest));
  TRY(parse_manifest(answer.first, answer.second));
  return digest_of(answer.first);
}

/// distribution-spec, "Listing Tags": pages, each of which says where the next one is.
Result<std::vector<std::string>> RegistryClient::list_tags() {
  TRY(choose_scheme());
  const std::string path = "/" + reference_.repository + "/tags/list";
  std::vector<std::string> tags;
  std::optional<std::string> query = "?n=1000";
  while (query) {
    TRY_ASSIGN(const HttpResponse page,
               get(base_url() + "/tags/list" + *query, "application/json", "tags", kMaxTagsBytes, nullptr));
    const auto json = parse_json(page.body);
    if (!json || json->as_object() == nullptr)
      return fail(
          Error(ErrorKind::corrupt, "tags: the answer is not a JSON object").with_code(ErrorCode::registry_answer));
    const size_t before = tags.size();
    for (const Json& tag : json->items("tags"))
      if (tag.as_text() != nullptr && is_tag(*tag.as_text())) tags.push_back(*tag.as_text());
    if (tags.size() > kMostTags)
      return fail(ErrorKind::failure, "tags: there are more than " + std::to_string(kMostTags));
    query = tags.size() > before ? next_page(page, path) : std::nullopt;
  }
  return tags;
}

Result<std::string> RegistryClient::fetch_config(const Descriptor& config) {
  const std::string what = "configuration " + config.digest.text();
  if (config.size > options_.budget.config_size)
    return fail(text_over_limit(what, config.size, options_.budget.config_size, "config_size"));
  TRY(choose_scheme());
  TRY_ASSIGN(HttpResponse response,
             get(blob_request(config.digest).url, "", what, options_.budget.config_size, "config_size"));
  if (digest_of(response.body) != config.digest)
    return fail(Error(ErrorKind::corrupt, what + ": its content has the digest " + digest_of(response.body).text())
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the registry, or a proxy on the way, serves damaged data"));
  return std::move(response.body);
}

}  // namespace situla
