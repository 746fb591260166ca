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
};

/// Parses all WWW-Authenticate values; Bearer is preferred over Basic, anything else ignored.
std::optional<Challenge> choose_challenge(const std::vector<std::string>& values);

/// "Basic <base64 of login:password>".
std::string basic_authorization(std::string_view login, std::string_view password);

/// URL of a token request: realm?service=..&scope=..[&account=..], percent-encoded. ErrorKind::corrupt when realm is no
/// http URL; plain http only if allowed.
Result<std::string> token_url(const Challenge& challenge, std::string_view fallback_scope, std::string_view account,
                              bool allow_http);

/// Host of a URL without port, as credentials name it.
std::string host_of_url(std::string_view url);

}  // namespace situla
