// Where in a SIF file, the image format of Apptainer and SingularityCE, does the squashfs image lie? Its header has a
// table that says so. (The format: the documentation of github.com/sylabs/sif; all numbers are little-endian, packed.)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "common/base/result.hpp"

namespace situla {

/// Offset from the start of the file, and size, bytes.
struct SifPartition {
  uint64_t offset = 0, bytes = 0;

  /// The primary system partition, or where there is none the first one with a squashfs file system. nullopt: it is no
  /// SIF file.
  /// ErrorKind::unsupported where what there is cannot be read, such as an encrypted one.
  static Result<std::optional<SifPartition>> find(int fd, uint64_t file_bytes) {
    std::array<char, kHeaderBytes> header{};
    constexpr std::string_view kMagic("SIF_MAGIC\0", 10);
    if (pread(fd, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
        std::string_view(header.data() + kMagicAt, kMagic.size()) != kMagic)
      return std::optional<SifPartition>();
    const auto count = std::min(number<uint64_t>(header.data() + kCountAt), kMostObjects);
    std::vector<char> table(count * kObjectBytes);
    const auto at = number<uint64_t>(header.data() + kTableAt);
    if (at > file_bytes || table.size() > file_bytes - at ||
        pread(fd, table.data(), table.size(), static_cast<off_t>(at)) != static_cast<ssize_t>(table.size()))
      return fail(damaged());
    return choose(table, file_bytes);
  }

 private:
  static constexpr size_t kHeaderBytes = 128, kMagicAt = 32, kCountAt = 88, kTableAt = 96;
  static constexpr uint64_t kMostObjects = 4096;  ///< what others write has 48
  static constexpr size_t kObjectBytes = 585, kUsedAt = 4, kOffsetAt = 17, kSizeAt = 25, kFileSystemAt = 201,
                          kPartitionAt = 205;
  static constexpr uint32_t kPartition = 0x4004;            ///< type of an object
  static constexpr uint32_t kSquashfs = 1, kEncrypted = 5;  ///< file systems
  static constexpr uint32_t kPrimarySystem = 2;             ///< type of a partition

  template <typename Number>
  static Number number(const char* bytes) {
    Number value{};
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }

  static Error damaged() {
    return Error(ErrorKind::corrupt, "read SIF header: its table lies outside of the file")
        .with_code(ErrorCode::image_damaged);
  }

  static Result<std::optional<SifPartition>> choose(const std::vector<char>& table, uint64_t file_bytes) {
    const char* chosen = nullptr;
    for (size_t object = 0; object < table.size(); object += kObjectBytes) {
      const char* const bytes = table.data() + object;
      if (bytes[kUsedAt] == 0 || number<uint32_t>(bytes) != kPartition) continue;
      const bool primary = number<uint32_t>(bytes + kPartitionAt) == kPrimarySystem;
      // Something else never stands in for a system that cannot be read.
      if (primary || (chosen == nullptr && number<uint32_t>(bytes + kFileSystemAt) == kSquashfs)) chosen = bytes;
      if (primary) break;
    }
    const uint32_t file_system = chosen == nullptr ? 0 : number<uint32_t>(chosen + kFileSystemAt);
    if (file_system != kSquashfs)
      return fail(Error(ErrorKind::unsupported, file_system == kEncrypted
                                                    ? "read SIF header: the file system in it is encrypted"
                                                    : "read SIF header: no squashfs file system is in it")
                      .with_code(ErrorCode::image_file));
    const SifPartition partition{number<uint64_t>(chosen + kOffsetAt), number<uint64_t>(chosen + kSizeAt)};
    if (partition.offset > file_bytes || partition.bytes > file_bytes - partition.offset) return fail(damaged());
    return std::optional(partition);
  }
};

}  // namespace situla
