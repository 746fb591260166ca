// How shall the squashfs file be written? The words of mksquashfs that matter, as sites have them in
// ENROOT_SQUASH_OPTIONS.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "common/base/log.hpp"
#include "common/base/result.hpp"

namespace situla {

struct SquashOptions {
  enum class Compressor { gzip, lzo, lz4, xz, zstd };
  static constexpr size_t kCompressors = 5;
  Compressor compressor = Compressor::zstd;
  std::optional<uint32_t> level = 1;  ///< nullopt: the compressor's own default
  bool lz4_hc = false;
  uint32_t block_bytes = 131072;
  bool store_inodes = false;         ///< -noI: do not compress
  bool store_data = false;           ///< -noD
  bool store_fragments = false;      ///< -noF
  bool store_xattrs = false;         ///< -noX
  bool fragments = true;             ///< -no-fragments: no packing of small files
  bool deduplicate = true;           ///< -no-duplicates
  uint32_t workers = 0;              ///< compressing threads at most; 0: one for each processor this process may use
  std::optional<uint32_t> all_time;  ///< modification time of everything, seconds (SOURCE_DATE_EPOCH)
  uint32_t made_time = 0;            ///< of the file system and of what no layer has, seconds
  /// The file system is full: true when there is room now, and the write is tried again. Called by the thread that
  /// writes; may be empty.
  std::function<bool()> make_room{};

  /// Parses mksquashfs words; options that do not concern us are ignored with a warning. ErrorKind::usage for a bad
  /// value.
  static Result<SquashOptions> parse(std::string_view words, LogSink& log);
};

/// "zstd"
std::string_view name_of(SquashOptions::Compressor compressor);
/// Whether libsquashfs was built with it (Debian's has no LZO).
bool can_write(SquashOptions::Compressor compressor);
/// SquashOptions::parse(), with times, and with zstd level 1 in the place of a compressor that cannot be written.
Result<SquashOptions> options_to_write(std::string_view words, std::optional<uint32_t> all_time, LogSink& log);

}  // namespace situla
