#include <cstdlib>
#include <memory>
#include <string>

#include <curl/curl.h>

#include "common/base/text.hpp"
#include "hooks/registry/auth.hpp"
#include "hooks/registry/login.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

struct Free {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

/// libcurl, which makes the request, sees the place that was checked.
void check_place(const std::string& text) {
  const std::unique_ptr<CURLU, Free> url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return;
  std::string host = to_lower(part_of(url.get(), CURLUPART_HOST));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const std::string ours = to_lower(host_of_url(text));
  // Of numbers it makes the usual form of an address.
  const bool is_address = ours.find_first_not_of("0123456789abcdefx.:") == std::string::npos;
  if (host != ours && !is_address) std::abort();
  const std::string scheme = part_of(url.get(), CURLUPART_SCHEME);
  if (!part_of(url.get(), CURLUPART_USER).empty()) std::abort();
  if (place_of(text) != scheme + "://" + ours + ":" + part_of(url.get(), CURLUPART_PORT)) {
    // A port with zeros in front names the same place in two ways: it only fits itself.
    const std::string written = place_of(text).substr(place_of(text).rfind(':') + 1);
    if (parse_unsigned(written) != parse_unsigned(part_of(url.get(), CURLUPART_PORT))) std::abort();
  }
}

void check_url(const std::string& url, const std::string& realm) {
  if (!is_plain_token(url) || host_of_url(url) != host_of_url(realm) || place_of(url) != place_of(realm)) std::abort();
  check_place(url);
}

/// Who gets to see a login that belongs to the token server's host.
void check_login(const std::string& realm) {
  const AskingRegistry registry{.authority = "registry.test", .base_url = "https://registry.test"};
  const std::vector<TokenServer> agreed = {{"registry.test", "auth.test"}};
  const auto granted = LoginFor::token_server(registry, realm, SecretOf::token_server, agreed);
  if (!granted) return;
  const std::string host = to_lower(host_of_url(realm));
  if (host != "registry.test" && place_of(realm) != "https://auth.test:443") std::abort();
  HttpRequest request;
  request.url = "https://elsewhere.test/token";
  if (granted->add({"registry.test", "user", "secret"}, request) || !request.authorization.empty()) std::abort();
}

}  // namespace

/// Lines of WWW-Authenticate, and the requests that come of them.
void situla::fuzz(std::string_view bytes) {
  std::vector<std::string> values;
  for (const std::string_view line : split(bytes, '\n')) values.emplace_back(line);
  (void)host_of_url(bytes);
  (void)place_of(bytes);
  const auto challenge = choose_challenge(values);
  if (!challenge) return;
  if (challenge->scheme != "bearer" && challenge->scheme != "basic") std::abort();
  const std::string realm = challenge->parameter("realm");
  constexpr std::string_view kScope = "repository:team/image:pull";
  for (const RealmRules rules :
       {RealmRules{}, RealmRules{true}, RealmRules{false, true}, RealmRules{false, false, "s"}}) {
    if (const auto url = token_url(*challenge, kScope, "user", rules)) {
      check_url(*url, realm);
      if (!rules.allow_http && !url->starts_with("https://")) std::abort();
      if (!rules.of_registry && url->find('?') != url->rfind('?')) std::abort();
      check_login(realm);
    }
    if (const auto post = token_post(*challenge, kScope, "identity", rules)) {
      check_url(post->url, realm);
      if (!is_plain_token(post->body)) std::abort();
    }
  }
}
