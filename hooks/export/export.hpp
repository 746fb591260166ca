// How does a container become a squashfs file again? What did not change keeps its compressed blocks, the rest is
// compressed. COMPAT.md 3 (export) and 5.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/containers/named_container.hpp"
#include "hooks/progress/progress.hpp"

namespace situla {

/// What is exported: a directory tree, or an image with the upper layer of an overlay on it.
struct ExportSource {
  std::string name;    ///< for messages
  UniqueFd directory;  ///< the tree, or the upper layer (written by an overlay with userxattr)
  UniqueFd image;      ///< the lower layer, a squashfs file; none for a tree

  static Result<ExportSource> open(const NamedContainer& container);
};

struct ExportOptions {
  std::string path;                  ///< of the file to be written
  bool replace = false;              ///< an existing file; else ErrorKind::exists
  std::string squash_options;        ///< ENROOT_SQUASH_OPTIONS; empty: as the image is compressed, else our default
  uint32_t workers = 0;              ///< compressing threads at most; 0: one for each processor
  std::optional<uint32_t> all_time;  ///< SOURCE_DATE_EPOCH, seconds

  /// What the configuration says of them; `path` is still missing.
  static ExportOptions of(const EnrootConfig& config);
};

struct ExportedImage {
  uint64_t image_bytes = 0;
  uint64_t kept_bytes = 0;        ///< compressed bytes that were taken over as they are
  uint64_t compressed_bytes = 0;  ///< uncompressed bytes of files that were compressed
};

/// A user may read all of his container's files only where he is root: enters a user namespace in which he is, for
/// good, unless the caller is root. For a single-threaded process. Without it, what the user cannot read cannot be
/// exported.
Result<void> become_root_of_own_files();
/// The same of a container on disk. One that has a range is exported with that, or not at all. One that nobody has been
/// root in yet has its user's range for the owners that its image names, or loses them, with a warning.
Result<void> become_root_of(const NamedContainer& container, LogSink& log);

/// The file appears under its name when it is complete and synced; nothing is left of it otherwise. Left out are what
/// enroot leaves out: the content of /dev, mount points it made (mode 0), /.lock and /.enroot, sockets, devices; and
/// /.situla. Everything belongs to root; in a user namespace with a range, to whom the container's programs say. A
/// container that is running may be exported: files that change meanwhile are taken as they are when they are read,
/// with a warning.
Result<ExportedImage> export_container(const ExportSource& source, const ExportOptions& options, Progress& progress,
                                       LogSink& log);

}  // namespace situla
