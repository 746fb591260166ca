// What does an /etc/ld.so.cache say, and how is one written that the dynamic linker believes? The format of glibc 2.2
// and later ("glibc-ld.so.cache1.1"), alone or behind a block of the format before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// LdCacheEntry::flags: the low byte says what kind of file it is, the next one for which processor.
constexpr uint32_t kLdElfLibc6 = 0x0003;
constexpr uint32_t kLdArchMask = 0xff00;
constexpr uint32_t kLdI386 = 0x0000;
constexpr uint32_t kLdX86_64 = 0x0300;
constexpr uint32_t kLdPpc64Le = 0x0500;
constexpr uint32_t kLdX32 = 0x0800;
constexpr uint32_t kLdArmHardFloat = 0x0900;
constexpr uint32_t kLdAarch64 = 0x0a00;

/// The most that is read of a cache, in bytes: far more than any system's. It may be an image's.
constexpr size_t kMaxLdCache = size_t{16} << 20U;

/// The flags of libraries for the processor that this program was built for, or for its 32-bit relative.
uint32_t native_ld_flags(bool is_32bit);

/// One line of `ldconfig -p`. The texts are the cache's own bytes, and as foreign as these.
struct LdCacheEntry {
  std::string_view soname;
  std::string_view path;
  uint32_t flags = 0;
  uint32_t os_version = 0;
  uint64_t hwcap = 0;

  [[nodiscard]] bool is_elf() const { return (flags & 1U) != 0; }
  [[nodiscard]] uint32_t arch() const { return flags & kLdArchMask; }
  friend bool operator==(const LdCacheEntry&, const LdCacheEntry&) = default;
};

struct LdCache {
  std::vector<LdCacheEntry> entries;     ///< in the order of the file; of one SONAME and processor the first counts
  std::vector<std::string_view> hwcaps;  ///< names of glibc-hwcaps directories, to which LdCacheEntry::hwcap may refer

  /// Views into `bytes`, which has to live as long. ErrorKind::corrupt for everything that ld.so would not trust.
  static Result<LdCache> parse(std::string_view bytes);

  /// Puts entries in: the first of each SONAME and processor takes the place of all that the cache had of it.
  void put(const std::vector<LdCacheEntry>& added);
  /// Drops the entries whose file is in this directory itself.
  void drop_directory(std::string_view directory);

  /// The file: new format, ordered as the linker's binary search expects it.
  [[nodiscard]] std::string serialize() const;
};

/// The order of SONAMEs in a cache is descending by this: digits inside names compare as numbers.
int compare_ld_names(std::string_view one, std::string_view other);

}  // namespace situla
