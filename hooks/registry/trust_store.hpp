// Who vouches for a server? The certificates of a bundle, of which only those are parsed that are asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace situla {

/// A bundle of PEM certificates for OpenSSL. To parse the hundred and forty of a distribution takes tens of
/// milliseconds in each process; one is needed.
class TrustStore {
 public:
  /// Blocks that are no base64, or no certificate, are left out.
  explicit TrustStore(std::string_view pem);
  TrustStore(const TrustStore&) = delete;
  TrustStore& operator=(const TrustStore&) = delete;

  struct Certificate {
    std::string der;
    size_t subject = 0, subject_size = 0;  ///< of the name in it
    [[nodiscard]] std::string_view subject_name() const { return std::string_view(der).substr(subject, subject_size); }
  };
  [[nodiscard]] const std::vector<Certificate>& certificates() const { return certificates_; }

  /// Adds it to an SSL_CTX: whoever verifies with that asks here. The store must outlive the context. False: OpenSSL is
  /// out of memory.
  bool add_to(void* ssl_context) const;

 private:
  std::vector<Certificate> certificates_;
};

}  // namespace situla
