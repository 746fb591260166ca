#include "hooks/registry/auth.hpp"

#include <algorithm>
#include <array>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"

namespace situla {
namespace {

std::string percent_encode(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  static constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string encoded;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4U];
    encoded += kDigits[byte & 15U];
  }
  return encoded;
}

/// Reads schemes, each with name=token or name="quoted \" string" pairs behind it. Several may stand in one line.
std::vector<Challenge> parse_challenges(std::string_view value) {
  std::vector<Challenge> challenges;
  while (true) {
    value = value.substr(std::min(value.find_first_not_of(" \t,"), value.size()));
    if (value.empty()) return challenges;
    // A word and no '=' behind it: a scheme.
    const size_t end = value.find_first_of(" \t,=");
    const size_t next = end == std::string_view::npos ? end : value.find_first_not_of(" \t", end);
    const bool pair = next != std::string_view::npos && value[next] == '=' && !challenges.empty();
    if (!pair) {
      challenges.push_back({to_lower(value.substr(0, end)), {}});
      value = end == std::string_view::npos ? std::string_view() : value.substr(end);
      // "=" alone, or a pair that belongs to no scheme.
      if (value.starts_with('=')) value.remove_prefix(1);
      continue;
    }
    const std::string name = to_lower(value.substr(0, end));
    value = value.substr(std::min(value.find_first_not_of(" \t", next + 1), value.size()));
    std::string text;
    if (value.starts_with('"')) {
      size_t i = 1;
      for (; i < value.size() && value[i] != '"'; ++i) {
        if (value[i] == '\\' && i + 1 < value.size()) ++i;
        text += value[i];
      }
      value.remove_prefix(std::min(i + 1, value.size()));
    } else {
      text = trim(value.substr(0, value.find(',')));
      value.remove_prefix(std::min(value.find(','), value.size()));
    }
    challenges.back().parameters.emplace(name, std::move(text));
  }
}

/// name=value pairs joined by '&', percent-encoded; empty values are left out.
struct Query {
  std::string text;
  void add(std::string_view name, std::string_view value) {
    if (value.empty()) return;
    if (!text.empty()) text += '&';
    text += std::string(name) + "=" + percent_encode(value);
  }
};

/// A URL in which two readers could see two hosts ("https://auth.test\\@evil.test/") is nobody's token server.
bool has_plain_host(std::string_view url) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:[]";
  url.remove_prefix(url.find("://") + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (url.empty() || url.find_first_not_of(kPlain) != std::string_view::npos) return false;
  const size_t colon = url.rfind(':');
  if (colon == std::string_view::npos || url.find(']', colon) != std::string_view::npos) return true;
  const auto port = parse_unsigned(url.substr(colon + 1));
  return port && *port > 0 && *port < 65536;
}

/// The realm is the registry's word, the query is ours: what somebody's login is shown for must be in ours alone.
Result<std::string> usable_realm(const Challenge& challenge, RealmRules rules) {
  std::string realm = challenge.parameter("realm");
  const bool http = realm.starts_with("https://") || (rules.allow_http && realm.starts_with("http://"));
  if (!http || !is_plain_token(realm) || !has_plain_host(realm))
    return fail(Error(ErrorKind::corrupt, "the registry names no usable token server ('" + excerpt(realm) + "')")
                    .with_code(ErrorCode::registry_answer));
  if (realm.find_first_of(rules.of_registry ? "#" : "?#") != std::string::npos)
    return fail(Error(ErrorKind::corrupt, "the registry names a token server with a query or a fragment of its own ('" +
                                              excerpt(realm) + "')")
                    .with_code(ErrorCode::registry_answer)
                    .with_hint("a registry could ask there for another repository than yours: its operator must name "
                               "the token server without them"));
  return realm;
}

std::string service_of(const Challenge& challenge, RealmRules rules) {
  return rules.service.empty() ? challenge.parameter("service") : std::string(rules.service);
}

}  // namespace

std::string Challenge::parameter(const std::string& name) const {
  const auto found = parameters.find(name);
  return found == parameters.end() ? std::string() : found->second;
}

std::optional<Challenge> choose_challenge(const std::vector<std::string>& values) {
  std::optional<Challenge> basic;
  for (const std::string& value : values)
    for (Challenge& challenge : parse_challenges(value)) {
      if (challenge.scheme == "bearer") return challenge;
      if (challenge.scheme == "basic" && !basic) basic = std::move(challenge);
    }
  return basic;
}

std::string basic_authorization(std::string_view login, std::string_view password) {
  std::string pair(login);
  pair += ':';
  pair += password;
  return "Basic " + encode_base64(pair);
}

Result<std::string> token_url(const Challenge& challenge, std::string_view scope, std::string_view account,
                              RealmRules rules) {
  TRY_ASSIGN(std::string url, usable_realm(challenge, rules));
  Query query;
  query.add("service", service_of(challenge, rules));
  query.add("scope", scope);
  query.add("account", account);
  if (query.text.empty()) return url;
  return url + (url.find('?') == std::string::npos ? '?' : '&') + query.text;
}

Result<TokenPost> token_post(const Challenge& challenge, std::string_view scope, std::string_view identity_token,
                             RealmRules rules) {
  TokenPost post;
  TRY_ASSIGN(post.url, usable_realm(challenge, rules));
  Query query;
  query.add("grant_type", "refresh_token");
  query.add("client_id", "situla");
  query.add("service", service_of(challenge, rules));
  query.add("scope", scope);
  query.add("refresh_token", identity_token);
  post.body = std::move(query.text);
  return post;
}

bool is_plain_token(std::string_view token) {
  return std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string host_of_url(std::string_view url) {
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  if (url.starts_with('[')) return std::string(url.substr(1, url.find(']') - 1));
  return std::string(url.substr(0, url.find(':')));
}

}  // namespace situla
