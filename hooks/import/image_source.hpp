// Where does an image come from? One interface for registries, for files in OCI and Docker formats, and for engines.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/import/manifest.hpp"
#include "hooks/import/origin.hpp"
#include "hooks/import/progress.hpp"
#include "hooks/import/request.hpp"

namespace situla {

/// An image, resolved: everything about it but its layers' content.
struct ResolvedImage {
  Digest digest;  ///< of the platform's manifest, verified
  Manifest manifest;
  std::string media_type = {};       ///< as served, for `situla inspect`; may be empty
  std::string bytes = {};            ///< of the manifest, as served; empty where the source has none
  std::optional<Digest> named = {};  ///< of what the reference means for every platform: an index, or the manifest
};

/// A layer to be read.
struct Blob {
  Digest digest;
  uint64_t size = 0;                   ///< bytes
  std::string name;                    ///< "layer 3 of 7 sha256:ab12...", for errors
  std::vector<std::string> urls = {};  ///< of a foreign layer (OCI image-spec, descriptor "urls"); usually empty
  bool of_content = false;             ///< the digest is of the uncompressed content; size is the blob's all the same
};

/// Bytes of blob i in order, each read to its end before the next; empty at its end, valid until the next call.
using BlobReader = std::function<Result<std::string_view>(size_t blob)>;

struct BlobStream {
  BlobReader read;             ///< called from one thread, which need not be the one that opened the stream
  std::function<void()> stop;  ///< makes a waiting read() return ErrorKind::cancelled; from any thread
};

class ImageSource {
 public:
  virtual ~ImageSource() = default;
  /// The manifest for a platform.
  virtual Result<ResolvedImage> resolve(const Platform& platform) = 0;
  /// The configuration's bytes, verified against its digest.
  virtual Result<std::string> fetch_config(const Descriptor& config) = 0;
  /// Whoever reads checks sizes and digests. One stream at a time; the source must outlive it.
  virtual Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) = 0;

  /// For each blob, whether this user may read it: asked of the source without fetching them. False where it is not
  /// sure.
  virtual std::vector<bool> readable(const std::vector<Blob>& blobs) { return std::vector<bool>(blobs.size(), false); }

  /// Where it comes from, as the store knows it; empty for what is in no registry.
  [[nodiscard]] virtual Origin origin() const { return {}; }
  /// What the user asked for, without secrets, for messages: "registry.test/debian:12", "oci:/data/layout:1".
  [[nodiscard]] virtual std::string text() const = 0;
  /// The same with the manifest's digest, where it can be named so: for records and the provenance in /etc/rc.
  [[nodiscard]] virtual std::string uri(const Digest& digest) const = 0;
};

/// The source that a request names. cancelled is asked while waiting.
Result<std::unique_ptr<ImageSource>> open_source(const ImportRequest& request, Progress& progress);

}  // namespace situla
