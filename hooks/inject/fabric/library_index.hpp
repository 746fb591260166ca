// Which file does the dynamic linker of a root take for a library's name, and what does it say?
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"

namespace situla::fabric {

/// A shared library for this processor. Paths are those inside the root, without links.
struct Library {
  std::string path;
  ElfLinkage linkage;
  [[nodiscard]] std::string directory() const { return path.substr(0, path.rfind('/')); }
};

class LibraryIndex {
 public:
  /// `first`: directories of LD_LIBRARY_PATH. `root` has to outlive it. A cache that cannot be read is none.
  static LibraryIndex load(const RootDir& root, std::vector<std::string> first = {});

  /// What the linker takes for this SONAME: nullopt when there is none for this processor that can be read. Looked up
  /// once; the answer lives as long as the index.
  [[nodiscard]] const std::optional<Library>& find(const std::string& soname) const;
  /// And what it would take if something else came first, each file once: programs may be started either way.
  [[nodiscard]] std::vector<Library> find_all(const std::string& soname) const;
  /// SONAMEs that the cache has and that begin like this: "libfabric.so."; some of them when there are very many.
  [[nodiscard]] std::vector<std::string> names_like(std::string_view prefix) const;
  [[nodiscard]] const RootDir& root() const { return *root_; }

 private:
  [[nodiscard]] std::vector<std::string> places(const std::string& soname) const;

  const RootDir* root_ = nullptr;
  std::vector<std::string> first_, directories_;
  std::unique_ptr<const std::string> bytes_;
  std::vector<LdCacheEntry> entries_;  ///< the cache's for this processor, by SONAME; of one in the cache's order
  mutable std::map<std::string, std::optional<Library>> found_;
};

/// ErrorKind::corrupt when it is no library for this processor.
Result<Library> open_library(const RootDir& root, const std::string& path);

}  // namespace situla::fabric
