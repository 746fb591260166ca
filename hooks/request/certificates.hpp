// Which CA certificates did the user bring? Their content, read as the user they belong to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "common/base/result.hpp"

namespace situla {

/// Who vouches for a registry. Content, because a path means something else to another process, and another file later.
struct TrustAnchors {
  std::string pem;          ///< canonical_certificates(); empty: the node's own certificates alone
  bool with_nodes = false;  ///< `pem` counts beside the node's own certificates, not instead of them

  static auto fields(auto& anchors) { return std::tie(anchors.pem, anchors.with_nodes); }
  friend bool operator==(const TrustAnchors&, const TrustAnchors&) = default;
};

/// As OpenSSL reads them: a file takes the place of the node's bundle, a directory (of `openssl rehash`) alone is added
/// to it. Either may be empty. A file that cannot be read, or has no certificate, is an error, a directory is not. At
/// most 1 MiB.
Result<TrustAnchors> read_trust_anchors(const std::string& file, const std::string& directory);

/// The certificates of a PEM text, each once, sorted, with nothing between them: the same text for everybody who trusts
/// the same ones. Whoever reads it sees no other certificate than this function did. nullopt for a block that is not
/// base64.
std::optional<std::string> canonical_certificates(std::string_view pem);

}  // namespace situla
