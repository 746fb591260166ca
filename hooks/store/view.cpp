#include "hooks/store/view.hpp"

#include <cstddef>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/protocol/messages.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "hooks/squashfs/layout.hpp"

namespace situla {
namespace {

constexpr mode_t kViewMode = 0400;
constexpr uint64_t kBlock = ViewMade::kBlockBytes;

Error foreign() {
  return {ErrorKind::unsupported, "this image cannot be shown as somebody else's: an older release imported it"};
}

template <typename T>
Result<T> read_at(int file, uint64_t offset) {
  T value{};
  if (offset > INT64_MAX - sizeof value ||
      pread(file, &value, sizeof value, static_cast<off_t>(offset)) != static_cast<ssize_t>(sizeof value))
    return fail(foreign());
  return value;
}

/// Where the two numbers are, in bytes. What an importer wrote is not believed: this is the table, and nothing else.
Result<uint64_t> find_ids(int image) {
  TRY_ASSIGN(const auto super, read_at<squashfs::Superblock>(image, 0));
  constexpr size_t kBefore = offsetof(squashfs::OwnIdTable, block);
  if (super.magic != squashfs::kMagic || super.id_count != squashfs::kIdCount || super.id_table < kBefore)
    return fail(foreign());
  const uint64_t begin = super.id_table - kBefore;
  TRY_ASSIGN(const auto table, read_at<squashfs::OwnIdTable>(image, begin));
  if (table.header != (squashfs::kMetadataStored | (2 * sizeof(uint32_t))) || table.block != begin || table.user != 0 ||
      table.group != 0)
    return fail(foreign());
  return begin + offsetof(squashfs::OwnIdTable, user);
}

struct [[gnu::packed]] Ids {
  uint32_t user, group;
};

}  // namespace

Result<UniqueFd> share_view(const std::string& directory, int image, Owner owner) {
  TRY_ASSIGN(const uint64_t offset, find_ids(image));
  TRY_ASSIGN(const UniqueFd view, open_file(directory, O_TMPFILE | O_RDWR, 0600));
  TRY(share_all_blocks(image, view.get()));
  const Ids ids{owner.user, owner.group};
  if (pwrite(view.get(), &ids, sizeof ids, static_cast<off_t>(offset)) != static_cast<ssize_t>(sizeof ids))
    return fail_errno(errno, "write a view of the image");
  if (fchmod(view.get(), kViewMode) != 0) return fail_errno(errno, "close the view of the image");
  return open_file(fd_path(view.get()), O_RDONLY);
}

Result<ViewBlocks> view_blocks(int image, Owner owner) {
  TRY_ASSIGN(const uint64_t offset, find_ids(image));
  const Ids ids{owner.user, owner.group};
  ViewBlocks blocks;
  blocks.offset = offset / kBlock * kBlock;
  const uint64_t end = (offset + sizeof ids + kBlock - 1) / kBlock * kBlock;
  std::string bytes(end - blocks.offset, '\0');
  if (pread(image, bytes.data(), bytes.size(), static_cast<off_t>(blocks.offset)) != static_cast<ssize_t>(bytes.size()))
    return fail(foreign());
  bytes.replace(offset - blocks.offset, sizeof ids, reinterpret_cast<const char*>(&ids), sizeof ids);
  TRY_ASSIGN(blocks.memory, sealed_memory("situla-view", bytes));
  return blocks;
}

}  // namespace situla
