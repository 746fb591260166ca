// Part of the adapter of libsquashfs: includes sqfs/*.h.
#include "hooks/squashfs/donor.hpp"

#include <algorithm>
#include <ctime>

#include <sys/stat.h>

#include <sqfs/block.h>
#include <sqfs/compressor.h>
#include <sqfs/frag_table.h>
#include <sqfs/super.h>

#include "hooks/squashfs/io.hpp"

namespace situla {

bool can_write(SquashOptions::Compressor compressor) {
  sqfs_compressor_config_t config;
  sqfs_compressor_t* created = nullptr;
  if (sqfs_compressor_config_init(&config, compressor_id(compressor), 131072, 0) != 0) return false;
  if (sqfs_compressor_create(&config, &created) != 0) return false;
  sqfs_destroy(created);
  return true;
}

Result<SquashOptions> options_to_write(std::string_view words, std::optional<uint32_t> all_time, LogSink& log) {
  TRY_ASSIGN(SquashOptions options, SquashOptions::parse(words, log));
  if (!can_write(options.compressor)) {
    log.warning("ENROOT_SQUASH_OPTIONS: this libsquashfs cannot write the compressor asked for: using zstd level 1");
    options.compressor = SquashOptions::Compressor::zstd;
    options.level = 1;
  }
  options.all_time = all_time;
  options.made_time = all_time.value_or(static_cast<uint32_t>(std::time(nullptr)));
  return options;
}

Result<std::unique_ptr<SquashfsDonor>> SquashfsDonor::open(UniqueFd fd, const std::string& where) {
  std::unique_ptr<SquashfsDonor> donor(new SquashfsDonor(std::move(fd), where));
  const Error damaged =
      Error(ErrorKind::corrupt, where + ": not a squashfs file, or a damaged one").with_code(ErrorCode::image_damaged);
  struct stat status {};
  if (fstat(donor->fd(), &status) != 0) return fail(Error::from_errno(errno, "read " + where));
  DescriptorFile file(donor->fd());
  file.size = static_cast<sqfs_u64>(status.st_size);
  sqfs_super_t super{};
  if (sqfs_super_read(&super, &file.base) != 0 || super.bytes_used > file.size ||
      super.inode_table_start > super.bytes_used || super.fragment_entry_count > super.inode_table_start)
    return fail(damaged);  // each fragment has a byte at least: no table of them is larger than the file many times
  donor->compressor_ = super.compression_id;
  donor->has_options_ = (super.flags & SQFS_FLAG_COMPRESSOR_OPTIONS) != 0;
  donor->block_bytes_ = super.block_size;
  donor->data_end_ = super.inode_table_start;
  if (super.fragment_entry_count == 0) return donor;
  sqfs_compressor_config_t config;
  sqfs_compressor_t* created = nullptr;
  if (sqfs_compressor_config_init(&config, static_cast<SQFS_COMPRESSOR>(super.compression_id), super.block_size,
                                  SQFS_COMP_FLAG_UNCOMPRESS) != 0 ||
      sqfs_compressor_create(&config, &created) != 0)
    return fail(Error(ErrorKind::unsupported, where + ": this libsquashfs does not know its compressor")
                    .with_code(ErrorCode::image_unsupported));
  const Owned<sqfs_compressor_t> decompressor(created);
  const Owned<sqfs_frag_table_t> table(sqfs_frag_table_create(0));
  if (!table || sqfs_frag_table_read(table.get(), &file.base, &super, decompressor.get()) != 0) return fail(damaged);
  donor->fragments_.resize(sqfs_frag_table_get_size(table.get()));
  for (uint32_t i = 0; i < donor->fragments_.size(); ++i) {
    sqfs_fragment_t entry{};
    if (sqfs_frag_table_lookup(table.get(), i, &entry) != 0) return fail(damaged);
    donor->fragments_[i] = {entry.start_offset, entry.size};
  }
  return donor;
}

bool SquashfsDonor::fits(const SquashOptions& options) const {
  // Options of xz bound the dictionary that a reader makes room for.
  if (options.compressor == SquashOptions::Compressor::xz && has_options_) return false;
  return compressor_ == static_cast<uint32_t>(compressor_id(options.compressor)) && block_bytes_ == options.block_bytes;
}

std::optional<SquashOptions> SquashfsDonor::fitting(SquashOptions options) const {
  const auto* known = std::find(kCompressorIds.begin(), kCompressorIds.end(), compressor_);
  if (known == kCompressorIds.end()) return std::nullopt;
  const auto compressor = static_cast<SquashOptions::Compressor>(known - kCompressorIds.begin());
  if (compressor != options.compressor) options.level.reset();
  options.compressor = compressor;
  options.block_bytes = block_bytes_;
  return fits(options) && can_write(compressor) ? std::optional(options) : std::nullopt;
}

Result<StoredFragment> SquashfsDonor::fragment(uint32_t index) const {
  if (index >= fragments_.size() || !contains(fragments_[index].start, stored_size(fragments_[index].size)))
    return fail(
        Error(ErrorKind::corrupt, where_ + ": names a fragment that is not there").with_code(ErrorCode::image_damaged));
  return fragments_[index];
}

bool SquashfsDonor::contains(uint64_t start, uint64_t bytes) const {
  return start <= data_end_ && bytes <= data_end_ - start;
}

}  // namespace situla
