// What is there to fetch of an image? Its manifest, and blobs that are read one after the other.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/registry/manifest.hpp"

namespace situla {

/// An image, resolved: everything about it but its layers' content.
struct ResolvedImage {
  Digest digest;  ///< of the platform's manifest, verified
  Manifest manifest;
  std::string media_type = {};       ///< as served, for `situla inspect`; may be empty
  std::string bytes = {};            ///< of the manifest, as served; empty where the source has none
  bool is_known = false;             ///< as ImportRequest::known says; then nothing but the digests is here
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
  /// Why nothing comes just now, for Progress::waiting(); from any thread. None: that is not known.
  std::function<std::string()> waits_for = nullptr;
};

}  // namespace situla
