// May a login be shown to the token server that a registry names? Without a LoginFor no secret is put into a request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/request/credentials.hpp"

namespace situla {

/// Who asks for a login.
struct AskingRegistry {
  std::string authority;   ///< host[:port], as the user named it
  bool verified = true;    ///< its certificate is
  std::string base_url{};  ///< "https://registry.test"
};

/// Whose secret it is. What is the registry's own it gets anyway, when it asks by Basic: a token made from it tells
/// nothing new. The login of another host it must never get, nor what that host gives out for it: a registry could name
/// any server at which its victim has an account.
enum class SecretOf : uint8_t { registry, token_server };

/// That a login may be used at a place for a registry.
class LoginFor {
 public:
  /// Of the registry itself, by Basic.
  static LoginFor itself(const AskingRegistry& registry);
  /// Of the token server at `realm` (URL). A secret of the token server's only when it is the registry's own host, a
  /// pair that is known (Docker Hub's, NVIDIA's, GitLab's) or one of `agreed`. ErrorKind::denied, with what to add.
  static Result<LoginFor> token_server(const AskingRegistry& registry, const std::string& realm, SecretOf secret,
                                       const std::vector<TokenServer>& agreed);

  /// As HTTP Basic. The request must be for the place that this is for (ErrorKind::denied).
  Result<void> add(const Credential& credential, HttpRequest& request) const;
  /// As the body of a POST, which holds the secret.
  Result<void> add_form(std::string form, HttpRequest& request) const;
  /// What the token has to be for, where the pair's operator has documented it; empty: the registry's word. A token
  /// server may know services that are no registry (NVIDIA's gives out tokens for all of NGC's API).
  [[nodiscard]] std::string_view service() const { return service_; }

 private:
  explicit LoginFor(std::string place, std::string_view service = "") : place_(std::move(place)), service_(service) {}
  [[nodiscard]] Result<void> check(const HttpRequest& request) const;
  std::string place_;         ///< "https://auth.test:443"
  std::string_view service_;  ///< of the table of known pairs
};

/// Scheme, host in lower case and port of a URL: "https://auth.test:443".
std::string place_of(std::string_view url);

}  // namespace situla
