// What does the registry have under this name, and how is it asked? OCI distribution-spec: /v2/NAME/manifests/REF,
// /v2/NAME/blobs/D.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/registry/auth.hpp"
#include "hooks/registry/blob.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/login.hpp"
#include "hooks/registry/manifest.hpp"
#include "hooks/request/credentials.hpp"

namespace situla {

class RegistryClient {
 public:
  struct Options {
    bool allow_http = false;
    RetryLimits limits;
    bool insecure = false;                                 ///< the certificate is not verified
    bool stands_in = false;                                ///< RegistryEndpoint::stands_in
    std::vector<TokenServer> token_servers;                ///< pairs beside the known ones
    ImportBudget budget;                                   ///< sizes of manifests and configurations
    uint32_t connect_timeout = 0;                          ///< seconds; 0: what the settings say
    bool impatient = false;                                ///< ImportRequest::impatient
    std::optional<NamedManifest> known;                    ///< ImportRequest::known
    std::function<bool()> cancelled;                       ///< asked while waiting; may be empty
    std::function<void(const std::string&)> waiting;       ///< as Progress::waiting(); may be empty
    std::function<void(std::chrono::milliseconds)> sleep;  ///< between attempts; tests replace it
  };

  /// transport and credentials must outlive the client.
  RegistryClient(HttpTransport& transport, ImageReference reference, const CredentialSet& credentials, Options options);

  /// One or two manifest requests and, if the registry wants it, one for a token. One where Options::known is still
  /// true.
  Result<ResolvedImage> resolve(const Platform& platform);
  /// ResolvedImage::named alone: one request, whatever platforms there are.
  Result<Digest> named_digest();
  /// Finds out whether the registry speaks TLS, where it may be without; once. Part of what follows.
  Result<void> choose_scheme();
  /// The configuration's bytes, verified against its digest.
  Result<std::string> fetch_config(const Descriptor& config);
  /// All tags of the repository, in the registry's order; whichever the reference names is not looked at. Text of the
  /// registry's, checked to be tags. At most 100,000.
  Result<std::vector<std::string>> list_tags();

  /// A request for a blob, with what is known now about who asks.
  [[nodiscard]] HttpRequest blob_request(const Digest& digest) const;
  [[nodiscard]] const ImageReference& reference() const { return reference_; }
  /// Whether a certificate vouches for who answers.
  [[nodiscard]] bool verified() const { return scheme_ == "https://" && !options_.insecure; }
  /// Value of the Authorization header for requests now; empty when none is needed. A secret.
  [[nodiscard]] const std::string& authorization() const { return authorization_; }
  /// Gets new authorization after a 401; the error says what to do. May be called while blobs are being fetched.
  Result<void> authorize(const HttpResponse& response);
  /// What a status other than 2xx means; `what` is what was asked for ("manifest of registry.test/x:1").
  [[nodiscard]] Error status_error(const HttpResponse& response, const std::string& what) const;

 private:
  Result<HttpResponse> get(const std::string& url, std::string_view accept, const std::string& what, size_t limit,
                           const char* limit_key);
  Result<HttpResponse> fetch_telling(const HttpRequest& request, size_t limit, unsigned attempt);
  void tell_waiting(const std::string& why) const;
  Result<HttpResponse> get_with_retries(const HttpRequest& request, size_t limit);
  Result<std::pair<std::string, std::string>> get_manifest(const std::string& name,
                                                           const std::optional<Digest>& expected);
  Result<void> authorize_basic();
  [[nodiscard]] Result<HttpRequest> token_request(const Challenge& challenge, const Credential* credential) const;
  Result<void> authorize_bearer(const Challenge& challenge);
  [[nodiscard]] HttpRequest request_to(std::string url) const;
  [[nodiscard]] const Credential* credential_for(const std::string& realm_host) const;
  [[nodiscard]] SecretOf owner_of(const Credential& credential) const;
  [[nodiscard]] AskingRegistry asking() const;
  [[nodiscard]] std::string base_url() const { return scheme_ + reference_.registry + "/v2/" + reference_.repository; }

  HttpTransport& transport_;
  ImageReference reference_;
  const CredentialSet& credentials_;
  Options options_;
  std::string scheme_ = "https://";
  bool scheme_chosen_ = false;
  std::string authorization_;
  std::string login_;  ///< who authorization_ speaks for; empty: anonymous
};

}  // namespace situla
