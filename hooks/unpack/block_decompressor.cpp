// The adapter of libzstd and of libsquashfs' other decompressors.
#include "hooks/unpack/block_decompressor.hpp"

#include <zstd.h>

#include <sqfs/compressor.h>

#include "hooks/unpack/lzo.hpp"

namespace situla {
namespace {

struct FreeCompressor {
  void operator()(sqfs_compressor_t* compressor) const { sqfs_destroy(compressor); }
};
struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

struct BlockDecompressor::State {
  uint16_t compressor = 0;
  // libsquashfs makes a context for every block, which costs as much as the block itself.
  std::unique_ptr<ZSTD_DCtx, FreeContext> zstd;
  std::unique_ptr<sqfs_compressor_t, FreeCompressor> other;
};

BlockDecompressor::BlockDecompressor(std::unique_ptr<State> state) : state_(std::move(state)) {}
BlockDecompressor::BlockDecompressor(BlockDecompressor&&) noexcept = default;
BlockDecompressor& BlockDecompressor::operator=(BlockDecompressor&&) noexcept = default;
BlockDecompressor::~BlockDecompressor() = default;

std::string BlockDecompressor::name(uint16_t compressor) {
  const char* name = sqfs_compressor_name_from_id(static_cast<SQFS_COMPRESSOR>(compressor));
  return name != nullptr ? name : "number " + std::to_string(compressor);
}

Result<BlockDecompressor> BlockDecompressor::create(uint16_t compressor, uint32_t block_bytes) {
  auto state = std::make_unique<State>();
  state->compressor = compressor;
  if (compressor == SQFS_COMP_LZO) return BlockDecompressor(std::move(state));
  if (compressor == SQFS_COMP_ZSTD) {
    state->zstd.reset(ZSTD_createDCtx());
    if (!state->zstd) return fail_errno(ENOMEM, "read image");
    return BlockDecompressor(std::move(state));
  }
  if (compressor < SQFS_COMP_MIN || compressor > SQFS_COMP_MAX)
    return fail(Error(ErrorKind::unsupported, "read superblock: compressed with method " + std::to_string(compressor) +
                                                  ", which this build cannot read")
                    .with_code(ErrorCode::image_unsupported));
  sqfs_compressor_config_t config{};
  sqfs_compressor_t* created = nullptr;
  if (sqfs_compressor_config_init(&config, static_cast<SQFS_COMPRESSOR>(compressor), block_bytes,
                                  SQFS_COMP_FLAG_UNCOMPRESS) != 0 ||
      sqfs_compressor_create(&config, &created) != 0)
    return fail(Error(ErrorKind::unsupported,
                      "read image: compressed with " + name(compressor) + ", which this build cannot read")
                    .with_code(ErrorCode::image_unsupported)
                    .with_hint("convert it: unsquashfs, then mksquashfs -comp zstd"));
  state->other.reset(created);
  return BlockDecompressor(std::move(state));
}

Result<size_t> BlockDecompressor::decompress(std::string_view block, char* out, size_t capacity) {
  const auto damaged = [] {
    return fail(Error(ErrorKind::corrupt, "read image: a damaged block").with_code(ErrorCode::image_damaged));
  };
  const auto* in = reinterpret_cast<const uint8_t*>(block.data());
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  if (state_->zstd) {
    const size_t size = ZSTD_decompressDCtx(state_->zstd.get(), out, capacity, block.data(), block.size());
    if (ZSTD_isError(size) != 0) return damaged();
    return size;
  }
  if (state_->compressor == SQFS_COMP_LZO) {
    const auto size = lzo_decode(in, block.size(), bytes, capacity);
    if (!size) return damaged();
    return *size;
  }
  sqfs_compressor_t* other = state_->other.get();
  const sqfs_s32 size =
      other->do_block(other, in, static_cast<sqfs_u32>(block.size()), bytes, static_cast<sqfs_u32>(capacity));
  if (size <= 0) return damaged();
  return static_cast<size_t>(size);
}

}  // namespace situla
