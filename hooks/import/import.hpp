// How does an image in a registry become a squashfs file? The entry points of hooks/import.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/digest.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/registry/manifest.hpp"
#include "hooks/request/request.hpp"
#include "hooks/squashfs/trace.hpp"

namespace situla {

class FinishedImages;

struct ImportedImage {
  Digest digest;                ///< of the manifest
  std::string path;             ///< the squashfs file
  std::string source;           ///< "docker://registry/repository:tag@sha256:..."
  uint64_t fetched_bytes = 0;   ///< compressed layers that an earlier import did not have
  uint64_t unpacked_bytes = 0;  ///< tar streams
  uint64_t image_bytes = 0;     ///< size of the squashfs file
  uint64_t dead_bytes = 0;      ///< uncompressed bytes of files in it that a later entry of the same layer replaced
};

/// Writes the image to `path` as the calling user, with their ENROOT_SQUASH_OPTIONS and SOURCE_DATE_EPOCH. An existing
/// target is ErrorKind::exists, "File already exists: PATH", before anything is fetched. Nothing appears under `path`
/// unless it is whole.
/// layer_cache: directory in which the user's imports know of each other's layers; empty: every layer is fetched. Not
/// used with SOURCE_DATE_EPOCH, which asks for a file that depends on the image alone. trace: what is to be told where
/// the time goes, also of an import that fails; may be null. finished: has maybe a copy of the whole image, for who has
/// no wishes (ENROOT_SQUASH_OPTIONS, SOURCE_DATE_EPOCH); may be null.
Result<ImportedImage> import_to_file(const ImportRequest& request, const std::string& path,
                                     const std::string& layer_cache, Progress& progress, LogSink& log,
                                     Trace* trace = nullptr, FinishedImages* finished = nullptr);

/// An image in a file without a name, which is gone with its last descriptor.
struct UnnamedImage {
  UniqueFd file;  ///< open for reading
  Digest digest;  ///< of the manifest
};

/// As import_to_file(), into the directory, for one use: other imports cannot build on it. ErrorKind::no_space with the
/// directory's name when it is full.
Result<UnnamedImage> import_to_unnamed_file(const ImportRequest& request, const std::string& directory,
                                            const std::string& layer_cache, Progress& progress, LogSink& log,
                                            FinishedImages* finished = nullptr);

/// What the reference stands for now (`situla digest`): the manifest for the platform; one or two requests, no layer.
Result<Digest> resolve_digest(const ImportRequest& request, LogSink& log);
/// The same for every platform: the index that lists the manifests, or the one manifest itself; one request. The
/// platform need not be among them: it is that of the nodes which counts.
Result<Digest> resolve_index_digest(const ImportRequest& request, LogSink& log);

/// The tags of the repository that the reference is in (`situla tags`), in the registry's order.
Result<std::vector<std::string>> list_tags(const ImportRequest& request);

/// What is known of an image without its layers. Texts are the image's own: printable() before they are shown.
struct ImageDescription {
  Digest digest;
  std::string source;      ///< as ImportedImage::source
  std::string media_type;  ///< of the manifest
  std::string bytes;       ///< of the manifest, as served; empty where the source has none
  Manifest manifest;
  ImageConfig config;
};
/// `situla inspect`: the requests of resolve_digest(), and one for the configuration.
Result<ImageDescription> describe_image(const ImportRequest& request, LogSink& log);

}  // namespace situla
