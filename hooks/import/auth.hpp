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

/// nullopt when it is not base64 (RFC 4648, 4; padding may be missing).
std::optional<std::string> decode_base64(std::string_view text);

/// URL of a token request: realm?service=..&scope=..[&account=..], percent-encoded. ErrorKind::corrupt when realm is no
/// http URL; plain http only if allowed.
Result<std::string> token_url(const Challenge& challenge, std::string_view scope, std::string_view account,
                              bool allow_http);

/// The same as a POST (distribution's OAuth2 specification): the realm as URL, and the body, a secret, that trades an
/// identity token for a token.
struct TokenPost {
  std::string url, body;
};
Result<TokenPost> token_post(const Challenge& challenge, std::string_view scope, std::string_view identity_token,
                             bool allow_http);

/// Host of a URL without port, as credentials name it.
std::string host_of_url(std::string_view url);

}  // namespace situla
