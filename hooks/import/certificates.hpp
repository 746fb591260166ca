// Which CA certificates did the user bring? Their content, read as the user they belong to.
#pragma once

#include <string>

#include "common/base/result.hpp"

namespace situla {

/// Who vouches for a registry. Content, because a path means something else to another process, and another file later.
struct TrustAnchors {
  std::string pem;          ///< empty: the node's own certificates alone
  bool with_nodes = false;  ///< `pem` counts beside the node's own certificates, not instead of them

  friend bool operator==(const TrustAnchors&, const TrustAnchors&) = default;
};

/// As OpenSSL reads them: a file takes the place of the node's bundle, a directory (of `openssl rehash`) alone is added
/// to it. Either may be empty. A file that cannot be read is an error, a directory is not. At most 1 MiB.
Result<TrustAnchors> read_trust_anchors(const std::string& file, const std::string& directory);

}  // namespace situla
