// How do compressed blocks get from one squashfs file into another without being decompressed? Part of the adapter;
// only squashfs_writer.cpp includes it.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include <sqfs/compressor.h>
#include <sqfs/frag_table.h>

#include "common/sys/file.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/io.hpp"
#include "hooks/squashfs/tree.hpp"

namespace situla {

/// What has been taken from one donor.
class Adoption {
 public:
  explicit Adoption(const SquashfsDonor& donor) : donor_(donor) {}

  /// Where blocks at this place of the donor are now, if all of them are there.
  [[nodiscard]] std::optional<sqfs_u64> find(uint64_t start, uint64_t bytes) const {
    auto after = copied_.upper_bound(start);
    if (after == copied_.begin()) return std::nullopt;
    const auto& [begin, piece] = *std::prev(after);
    if (start + bytes > begin + piece.bytes) return std::nullopt;
    return piece.at + (start - begin);
  }

  /// Puts the blocks of a file at the end of the new one, or with those waiting to be; returns where they are.
  Result<sqfs_u64> take(const StoredFile& blocks, DescriptorFile& file) {
    const uint64_t bytes = blocks.stored_bytes();
    if (donor_.check() == nullptr || bytes == 0) return take(blocks.start, bytes, file);
    if (const auto found = find(blocks.start, bytes)) return *found;
    if (!donor_.contains(blocks.start, bytes)) return fail(damaged());
    const sqfs_u64 at = file.size;
    donor_.check()->begin_blocks(blocks.start, bytes);
    DescriptorFile from(donor_.fd());
    piece_.resize(kPiece);
    for (uint64_t done = 0; done < bytes;) {
      const size_t count = std::min<uint64_t>(bytes - done, kPiece);
      if (DescriptorFile::read_at(&from.base, blocks.start + done, piece_.data(), count) != 0) return fail(damaged());
      donor_.check()->add(std::string_view(piece_).substr(0, count));
      TRY(write(std::string_view(piece_).substr(0, count), file));
      done += count;
    }
    // What was written is what was checked. If it is wrong the whole file is.
    if (!donor_.check()->matches(blocks.seal)) return fail(other_content());
    copied_[blocks.start] = {at, bytes};
    return at;
  }

  /// The same of a place in the donor, which is believed.
  Result<sqfs_u64> take(uint64_t start, uint64_t bytes, DescriptorFile& file) {
    if (bytes == 0) return 0;
    if (const auto found = find(start, bytes)) return *found;
    if (!donor_.contains(start, bytes)) return fail(damaged());
    if (waiting_bytes_ == 0 || start != waiting_start_ + waiting_bytes_ || waiting_bytes_ >= kMostAtOnce) {
      TRY(flush(file));
      if (const auto found = find(start, bytes)) return *found;  // of a file with the same content
      waiting_start_ = start;
    }
    const sqfs_u64 at = file.size + waiting_bytes_;
    waiting_bytes_ += bytes;
    return at;
  }

  /// Copies what waits. To be called before anything else is written to the file.
  Result<void> flush(DescriptorFile& file) {
    if (waiting_bytes_ == 0) return {};
    TRY(copy_range(donor_.fd(), waiting_start_, file.fd, file.size, waiting_bytes_));
    copied_[waiting_start_] = {file.size, waiting_bytes_};
    file.size += waiting_bytes_;
    file.write_behind();
    waiting_bytes_ = 0;
    return {};
  }

  /// Number in the new file of a donor's fragment, which is copied the first time.
  Result<sqfs_u32> take_fragment(const StoredFile& of, DescriptorFile& file, sqfs_frag_table_t* table) {
    const uint32_t index = of.fragment;
    if (const auto found = fragments_.find(index); found != fragments_.end()) return found->second;
    TRY_ASSIGN(const StoredFragment stored, donor_.fragment(index));
    sqfs_u64 at = file.size;
    if (donor_.check() == nullptr) {
      TRY_ASSIGN(at, take(stored.start, stored_size(stored.size), file));
    } else {
      TRY_ASSIGN(const std::string bytes, read_stored(of, stored));
      TRY(write(bytes, file));
    }
    sqfs_u32 number = 0;
    if (sqfs_frag_table_append(table, at, stored.size, &number) != 0)
      return fail(Error(ErrorKind::no_space, "out of memory").with_code(ErrorCode::memory));
    fragments_.emplace(index, number);
    return number;
  }
  [[nodiscard]] bool has_fragment(uint32_t index) const { return fragments_.contains(index); }

  /// Content of a fragment; valid until the next call.
  Result<std::string_view> read_fragment(const StoredFile& of, sqfs_compressor_t* decompressor, size_t block_bytes) {
    const uint32_t index = of.fragment;
    if (index == read_index_) return std::string_view(content_);
    TRY_ASSIGN(const StoredFragment stored, donor_.fragment(index));
    TRY_ASSIGN(std::string raw, read_stored(of, stored));
    read_index_ = index;
    content_ = std::move(raw);
    if ((stored.size & kStoredAsItIs) != 0) return std::string_view(content_);
    std::string unpacked(block_bytes, '\0');
    const sqfs_s32 size = decompressor->do_block(
        decompressor, reinterpret_cast<const sqfs_u8*>(content_.data()), static_cast<sqfs_u32>(content_.size()),
        reinterpret_cast<sqfs_u8*>(unpacked.data()), static_cast<sqfs_u32>(unpacked.size()));
    if (size <= 0) {
      read_index_ = StoredFile::kNoFragment;
      return fail(damaged());
    }
    unpacked.resize(static_cast<size_t>(size));
    content_ = std::move(unpacked);
    return std::string_view(content_);
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 20U;
  static constexpr uint64_t kMostAtOnce = uint64_t{8} << 20U;
  static constexpr uint32_t kStoredAsItIs = 1U << 24U;

  [[nodiscard]] Error damaged() const {
    return {ErrorKind::corrupt, donor_.where() + ": names blocks that are not there"};
  }
  [[nodiscard]] Error other_content() const {
    return {ErrorKind::corrupt, donor_.where() + ": holds something else than was written there"};
  }
  static Result<void> write(std::string_view bytes, DescriptorFile& file) {
    if (DescriptorFile::write_at(&file.base, file.size, bytes.data(), bytes.size()) == 0) return {};
    return fail_errno(file.errnum, "write");
  }
  /// A fragment as it is stored, checked.
  Result<std::string> read_stored(const StoredFile& of, const StoredFragment& stored) {
    DescriptorFile file(donor_.fd());
    if (stored_size(stored.size) > kPiece) return fail(damaged());
    std::string raw(stored_size(stored.size), '\0');
    if (DescriptorFile::read_at(&file.base, stored.start, raw.data(), raw.size()) != 0) return fail(damaged());
    if (DonorCheck* check = donor_.check(); check != nullptr) {
      check->begin_fragment(of.fragment, stored.size);
      check->add(raw);
      if (!check->matches(of.fragment_seal)) return fail(other_content());
    }
    return raw;
  }

  struct Piece {
    sqfs_u64 at = 0;
    uint64_t bytes = 0;
  };

  const SquashfsDonor& donor_;
  std::map<uint64_t, Piece> copied_;  ///< by the place in the donor
  uint64_t waiting_start_ = 0, waiting_bytes_ = 0;
  std::unordered_map<uint32_t, sqfs_u32> fragments_;
  uint32_t read_index_ = StoredFile::kNoFragment;
  std::string content_, piece_;
};

}  // namespace situla
