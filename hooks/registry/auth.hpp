// How does a registry want to know who asks? WWW-Authenticate challenges and the Authorization values that answer them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// One challenge (RFC 9110, 11.6.1): "Bearer realm=\"https://...\",service=\"...\",scope=\"...\"".
struct Challenge {
  std::string scheme;                             ///< in lower case: "basic", "bearer"
  std::map<std::string, std::string> parameters;  ///< names in lower case

  [[nodiscard]] std::string parameter(const std::string& name) const;  ///< empty if there is none
};

/// Parses all WWW-Authenticate values; Bearer is preferred over Basic, anything else ignored.
std::optional<Challenge> choose_challenge(const std::vector<std::string>& values);

/// "Basic <base64 of login:password>".
std::string basic_authorization(std::string_view login, std::string_view password);

/// What a realm may be.
struct RealmRules {
  bool allow_http = false;
  bool of_registry = false;    ///< it is at the registry itself: it may have a query of its own
  std::string_view service{};  ///< LoginFor::service(): comes before the challenge's
};

/// URL of a token request: realm?service=..&scope=..[&account=..], percent-encoded. ErrorKind::corrupt when realm is no
/// http URL, or could make something else of what is asked: a fragment cuts our query off, and of two scopes the token
/// server may honour the realm's.
Result<std::string> token_url(const Challenge& challenge, std::string_view scope, std::string_view account,
                              RealmRules rules);

/// The same as a POST (distribution's OAuth2 specification): the realm as URL, and the body, a secret, that trades an
/// identity token for a token.
struct TokenPost {
  std::string url, body;
};
Result<TokenPost> token_post(const Challenge& challenge, std::string_view scope, std::string_view identity_token,
                             RealmRules rules);

/// Whether it is a token as RFC 6750 has it, or near enough: printable ASCII without spaces, which ends no header line.
bool is_plain_token(std::string_view token);

/// Host of a URL without port, as credentials name it.
std::string host_of_url(std::string_view url);

}  // namespace situla
