#include <algorithm>
#include <array>
#include <string>

#include "hooks/unpack/image_parts.hpp"

namespace situla {
namespace {

constexpr uint64_t kMostBlocks = uint64_t{1} << 24U;

/// Where the end of a file, `size` bytes, is in the block that it shares.
Result<std::string_view> tail_of(const StoredInode& file, std::string_view fragment, size_t size) {
  if (file.fragment_offset > fragment.size() || size > fragment.size() - file.fragment_offset)
    return fail(damaged_image("a file lies outside of its fragment"));
  return fragment.substr(file.fragment_offset, size);
}

}  // namespace

Result<size_t> ImageAccess::load_block(uint64_t at, uint32_t word, char* out) {
  const size_t stored = word & (squashfs::kDataStored - 1);
  const size_t block_bytes = image_->super.block_bytes;
  if (stored > block_bytes || at > image_->super.bytes_used || stored > image_->super.bytes_used - at)
    return fail(damaged_image("a block outside of the file"));
  const bool compressed = (word & squashfs::kDataStored) == 0;
  if (compressed && !raw_) raw_ = std::make_unique_for_overwrite<char[]>(block_bytes);
  char* into = compressed ? raw_.get() : out;
  TRY_ASSIGN(const size_t got, image_->read(at, into, stored));
  if (got != stored) return fail(damaged_image("the file has become shorter"));
  return compressed ? decompressor_.decompress({into, stored}, out, block_bytes) : got;
}

Result<std::shared_ptr<const ImageAccess::Block>> ImageAccess::data_block(uint64_t at, uint32_t word) {
  using Loaded = std::pair<std::shared_ptr<const Block>, size_t>;
  if (at > image_->super.bytes_used) return fail(damaged_image("a block outside of the file"));
  return image_->blocks.get(Shared::data_key(at), [&]() -> Result<Loaded> {
    const size_t block_bytes = image_->super.block_bytes;
    auto block = std::make_shared<Block>();
    block->bytes = std::make_unique_for_overwrite<char[]>(block_bytes);
    TRY_ASSIGN(block->size, load_block(at, word, block->bytes.get()));
    return Loaded{std::move(block), block_bytes};
  });
}

Result<std::shared_ptr<const ImageAccess::Blocks>> ImageAccess::blocks_of(const StoredInode& file) {
  using Loaded = std::pair<std::shared_ptr<const Blocks>, size_t>;
  static const auto kNoBlocks = std::make_shared<const Blocks>();
  const uint64_t block_bytes = image_->super.block_bytes;
  const bool ends_in_fragment = file.fragment != StoredInode::kNone;
  const uint64_t count = file.size / block_bytes + (!ends_in_fragment && file.size % block_bytes != 0 ? 1 : 0);
  if (count == 0) return kNoBlocks;  // most files
  return image_->files.get(file.ref, [&]() -> Result<Loaded> {
    if (count > kMostBlocks) return fail(damaged_image("a file with too many blocks"));
    auto blocks = std::make_shared<Blocks>();
    MetadataPosition at = file.rest;
    uint64_t start = file.start;
    std::array<uint32_t, 1024> words{};
    for (uint64_t done = 0; done < count;) {
      const size_t part = std::min<uint64_t>(words.size(), count - done);
      TRY(read_metadata(at, words.data(), part * sizeof(uint32_t)));
      for (size_t i = 0; i < part; ++i) {
        blocks->starts.push_back(start);
        blocks->words.push_back(words[i]);
        start += words[i] & (squashfs::kDataStored - 1);
      }
      done += part;
    }
    return Loaded{std::move(blocks), static_cast<size_t>(count) * (sizeof(uint64_t) + sizeof(uint32_t)) + 128};
  });
}

Result<Extent> ImageAccess::block_extent(const Blocks& blocks, const StoredInode& file, uint64_t index) {
  const uint64_t block_bytes = image_->super.block_bytes;
  const size_t expected = std::min(block_bytes, file.size - index * block_bytes);
  const uint32_t word = blocks.words[index];
  if (word == 0) return Extent{nullptr, nullptr, expected};
  TRY_ASSIGN(const std::shared_ptr<const Block> block, data_block(blocks.starts[index], word));
  if (block->size < expected) return fail(damaged_image("a block is too short"));
  const char* bytes = block->bytes.get();
  return Extent{block, bytes, expected};
}

Result<squashfs::FragmentEntry> ImageAccess::fragment_entry(uint32_t index) {
  if (index >= image_->super.fragment_count) return fail(damaged_image("a fragment that is not there"));
  squashfs::FragmentEntry entry{};
  TRY_ASSIGN(MetadataPosition at, table_entry(image_->super.fragment_table, index, sizeof entry));
  TRY(read_metadata(at, &entry, sizeof entry));
  return entry;
}

/// The end of a file, or all of a small one, in a block that it shares.
Result<Extent> ImageAccess::fragment_extent(const StoredInode& file, size_t size) {
  TRY_ASSIGN(const squashfs::FragmentEntry entry, fragment_entry(file.fragment));
  TRY_ASSIGN(const std::shared_ptr<const Block> block, data_block(entry.start, entry.size));
  TRY_ASSIGN(const std::string_view bytes, tail_of(file, {block->bytes.get(), block->size}, size));
  return Extent{block, bytes.data(), bytes.size()};
}

Result<std::vector<Extent>> ImageAccess::read(const StoredInode& file, uint64_t offset, size_t size) {
  std::vector<Extent> extents;
  if (offset >= file.size) return extents;
  uint64_t left = std::min<uint64_t>(size, file.size - offset);
  const uint64_t block_bytes = image_->super.block_bytes;
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  while (left > 0) {
    const uint64_t index = offset / block_bytes;
    const uint64_t skip = offset % block_bytes;
    const bool in_block = index < blocks->words.size();
    auto found = in_block ? block_extent(*blocks, file, index)
                          : fragment_extent(file, static_cast<size_t>(file.size % block_bytes));
    if (!found)
      return fail(std::move(found).error().with_context(in_block ? "read data block " + std::to_string(index)
                                                                 : "read fragment"));
    Extent& extent = *found;
    if (extent.size <= skip) return fail(damaged_image("a file is shorter than it says"));
    if (extent.bytes != nullptr) extent.bytes += skip;
    extent.size = static_cast<size_t>(std::min<uint64_t>(extent.size - skip, left));
    offset += extent.size;
    left -= extent.size;
    extents.push_back(std::move(extent));
  }
  return extents;
}

Result<std::string_view> ImageAccess::block_once(uint64_t start, uint32_t word, size_t expected) {
  if (!once_) once_ = std::make_unique_for_overwrite<char[]>(image_->super.block_bytes);
  TRY_ASSIGN(const size_t size, load_block(start, word, once_.get()));
  if (size < expected) return fail(damaged_image("a block is too short"));
  return std::string_view(once_.get(), expected);
}

Result<std::string_view> ImageAccess::tail_once(const StoredInode& file, size_t size) {
  if (!fragment_ || last_fragment_ != file.fragment) {
    if (!fragment_) fragment_ = std::make_unique_for_overwrite<char[]>(image_->super.block_bytes);
    last_fragment_ = StoredInode::kNone;
    TRY_ASSIGN(const squashfs::FragmentEntry entry, fragment_entry(file.fragment));
    TRY_ASSIGN(fragment_size_, load_block(entry.start, entry.size, fragment_.get()));
    last_fragment_ = file.fragment;
  }
  return tail_of(file, {fragment_.get(), fragment_size_}, size);
}

Result<void> ImageAccess::read(const StoredInode& file, uint64_t begin, uint64_t end, const Take& take) {
  if (begin >= end) return {};
  if (end > file.size) return fail(damaged_image("a file is shorter than it says"));
  const uint64_t block_bytes = image_->super.block_bytes;
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  for (uint64_t at = begin; at < end;) {
    const uint64_t index = at / block_bytes;
    const uint64_t skip = at % block_bytes;
    const size_t whole = std::min(block_bytes, file.size - index * block_bytes);
    const size_t part = std::min<uint64_t>(whole - skip, end - at);
    const bool in_block = index < blocks->words.size();
    if (!in_block || blocks->words[index] != 0) {
      const auto bytes =
          in_block ? block_once(blocks->starts[index], blocks->words[index], whole) : tail_once(file, whole);
      if (!bytes)
        return fail(
            Error(bytes.error()).with_context(in_block ? "read data block " + std::to_string(index) : "read fragment"));
      TRY(take(at, bytes->substr(skip, part)));
    }
    at += part;
  }
  return {};
}

Result<StoredFile> ImageAccess::stored(const StoredInode& file) {
  TRY_ASSIGN(const std::shared_ptr<const Blocks> blocks, blocks_of(file));
  return StoredFile{file.start, file.size, file.sparse, file.fragment, file.fragment_offset, {}, {}, blocks->words};
}

}  // namespace situla
