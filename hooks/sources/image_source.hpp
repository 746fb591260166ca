// Where does an image come from? One interface for registries, for files in OCI and Docker formats, and for engines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/registry/blob.hpp"
#include "hooks/request/request.hpp"

namespace situla {

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  /// The manifest for a platform.
  virtual Result<ResolvedImage> resolve(const Platform& platform) = 0;
  /// What the reference means for every platform; where there is one only, its manifest's.
  virtual Result<Digest> named_digest(const Platform& platform) {
    TRY_ASSIGN(const ResolvedImage image, resolve(platform));
    return image.named.value_or(image.digest);
  }
  /// The configuration's bytes, verified against its digest.
  virtual Result<std::string> fetch_config(const Descriptor& config) = 0;
  /// Which tags there are beside the one that was asked for, in the source's order. ErrorKind::unsupported where images
  /// have none.
  virtual Result<std::vector<std::string>> list_tags() {
    return fail(ErrorKind::unsupported, text() + ": only a registry lists tags");
  }
  /// Whoever reads checks sizes and digests. One stream at a time; the source must outlive it.
  virtual Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) = 0;

  /// What the user asked for, without secrets, for messages: "registry.test/debian:12", "oci:/data/layout:1".
  [[nodiscard]] virtual std::string text() const = 0;
  /// The same with the manifest's digest, where it can be named so: for records and the provenance in /etc/rc.
  [[nodiscard]] virtual std::string uri(const Digest& digest) const = 0;
};

}  // namespace situla
