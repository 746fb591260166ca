// How does the dynamic linker of an image find libraries that the host brings? By links with their SONAMEs, an
// /etc/ld.so.cache that knows them, and /etc/ld.so.conf.d for the next ldconfig; with musl by its path file.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// A library that the dynamic linker shall find by its SONAME.
struct CachedLibrary {
  std::string soname;  ///< "libcuda.so.1"
  std::string path;    ///< inside: "/usr/lib/x86_64-linux-gnu/libcuda.so.1"; a link to the file or the file itself
  bool is_32bit = false;
  friend bool operator==(const CachedLibrary&, const CachedLibrary&) = default;
};

struct LibraryCacheEdit {
  std::vector<CachedLibrary> libraries;
  /// Inside; every library in them is to be found (CDI's update-ldcache), and SONAME links are made where they lack.
  std::vector<std::string> directories;
  /// Inside; their libraries come before all others (CUDA forward compatibility). Existing links are enough there.
  std::vector<std::string> preferred;
  [[nodiscard]] bool empty() const { return libraries.empty() && directories.empty() && preferred.empty(); }
};

/// Works on a read-only root as well: what cannot be written is built on a memory file system and mounted over it.
/// The caller may mount in its mount namespace; `root` is a mount of it.
Result<void> update_library_cache(const LibraryCacheEdit& edit, const RootDir& root, LogSink& log);

}  // namespace situla
