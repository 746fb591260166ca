// How does the dynamic linker of an image find libraries that the host brings? By links with their SONAMEs, an
// /etc/ld.so.cache that knows them, and /etc/ld.so.conf.d for the next ldconfig; with musl by its path file.
#pragma once

#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

struct LibraryCacheEdit;

/// Works on a read-only root as well: what cannot be written is built on a memory file system and mounted over it.
/// The caller may mount in its mount namespace; `root` is a mount of it.
Result<void> update_library_cache(const LibraryCacheEdit& edit, const RootDir& root, LogSink& log);

}  // namespace situla
