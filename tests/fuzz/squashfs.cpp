#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "common/sys/socket.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/walk_image.hpp"

namespace {

using namespace situla;

constexpr uint64_t kMostRead = uint64_t{1} << 20U;  // of one file, which may claim any size

/// As the FUSE server reads it: by extents.
std::optional<std::string> read_extents(ImageAccess& image, const StoredInode& file, uint64_t offset, size_t size) {
  const auto extents = image.read(file, offset, size);
  if (!extents) return std::nullopt;
  std::string content;
  for (const Extent& extent : *extents)
    content += extent.bytes != nullptr ? std::string(extent.bytes, extent.size) : std::string(extent.size, '\0');
  if (content.size() != std::min<uint64_t>(size, file.size - std::min(offset, file.size))) std::abort();
  return content;
}

/// As it is extracted: piece by piece.
std::optional<std::string> read_pieces(ImageAccess& image, const StoredInode& file, uint64_t begin, uint64_t end) {
  std::string content(end - begin, '\0');
  const auto done = image.read(file, begin, end, [&](uint64_t at, std::string_view bytes) -> Result<void> {
    if (at < begin || bytes.size() > end - at) std::abort();
    content.replace(at - begin, bytes.size(), bytes);
    return {};
  });
  return done ? std::optional(content) : std::nullopt;
}

void check_file(ImageAccess& image, const StoredInode& file) {
  const uint64_t end = std::min(file.size, kMostRead);
  const auto extents = read_extents(image, file, 0, end);
  const auto pieces = read_pieces(image, file, 0, end);
  // Both find the same content; where blocks of several kinds lie at one place, either may find the image damaged.
  if (extents && pieces && *extents != *pieces) std::abort();
  if (const auto part = read_extents(image, file, end / 2, 5000); part && extents && part->size() <= end - end / 2)
    if (extents->compare(end / 2, part->size(), *part) != 0) std::abort();
  (void)read_extents(image, file, file.size - std::min<uint64_t>(file.size, 10), 4096);
  (void)image.stored(file);
}

}  // namespace

/// A whole image, in a file of a user.
void situla::fuzz(std::string_view bytes) {
  const auto file = sealed_memory("image", bytes);
  if (!file) return;
  (void)read_image_info(file->get());
  (void)read_image_file(file->get(), "/etc/rc", 65536);
  if (auto image = ImageAccess::open(file->get())) {
    if (image->info().offset + image->info().bytes_used > bytes.size()) std::abort();
    const WalkedImage walked = walk_image(*image);
    for (const StoredInode& inode : walked.inodes) {
      if (S_ISREG(inode.mode)) check_file(*image, inode);
      if (S_ISLNK(inode.mode))
        if (const auto target = image->link_target(inode); target && target->size() != inode.size) std::abort();
      (void)image->attributes(inode);
    }
    (void)find_in_image(*image, "a/../b/./c");
    // What has been decompressed meanwhile changes no answer.
    const WalkedImage again = walk_image(*image);
    if (again.names != walked.names || again.inodes.size() != walked.inodes.size()) std::abort();
  }
  if (const auto donor = SquashfsDonor::open(UniqueFd(dup(file->get())), "donor")) {
    if ((*donor)->data_end() > bytes.size()) std::abort();
    for (uint32_t i = 0; i <= (*donor)->fragments(); ++i)
      if (const auto fragment = (*donor)->fragment(i))
        if (fragment->start + stored_size(fragment->size) > bytes.size()) std::abort();
  }
}
