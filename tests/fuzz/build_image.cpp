#include <algorithm>
#include <cstdlib>

#include <sys/stat.h>

#include "common/sys/socket.hpp"
#include "hooks/import/image_builder.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/fuzz/tar_input.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/fuzz/walk_image.hpp"

namespace {

using namespace situla;

Result<std::unique_ptr<LayerStream>> open_stream(const std::vector<std::string>& layers,
                                                 const std::vector<Blob>& wanted) {
  auto left = std::make_shared<std::vector<std::string_view>>();
  for (const Blob& blob : wanted)
    left->push_back(*std::find_if(layers.begin(), layers.end(),
                                  [&](const std::string& layer) { return digest_of(layer) == blob.digest; }));
  return std::make_unique<LayerStream>(
      wanted,
      [left](size_t blob) -> Result<std::string_view> {
        constexpr size_t kPiece = 700;
        const std::string_view piece = (*left)[blob].substr(0, kPiece);
        (*left)[blob].remove_prefix(piece.size());
        return piece;
      },
      [] {});
}

/// Our own reader finds in it what our own writer put there.
void check_built(int file) {
  auto image = ImageAccess::open(file);
  if (!image || !image->top()) std::abort();
  const auto owners = image->owners().value();
  if (std::any_of(owners.begin(), owners.end(), [](uint32_t owner) { return owner != 0; })) std::abort();
  for (const StoredInode& inode : walk_image(*image).inodes) {
    if (S_ISBLK(inode.mode) || S_ISCHR(inode.mode)) std::abort();
    if (S_ISDIR(inode.mode) && !image->list(inode)) std::abort();
    if (S_ISLNK(inode.mode) && !image->link_target(inode)) std::abort();
    if (!image->attributes(inode)) std::abort();
    constexpr uint64_t kMostRead = uint64_t{1} << 20U;
    if (S_ISREG(inode.mode) && !image->read(inode, 0, std::min(inode.size, kMostRead))) std::abort();
  }
  if (!read_image_file(file, "/etc/rc") || !find_in_image(*image, "/w/x")) std::abort();
}

}  // namespace

/// Layers of tar become a squashfs file, in one pass, and that is read again.
void situla::fuzz(std::string_view bytes) {
  const std::vector<std::string> layers = layers_in(bytes);
  std::vector<Blob> blobs;
  for (const std::string& layer : layers) blobs.push_back({digest_of(layer), layer.size(), "layer"});
  const auto file = memory_file("image");
  if (!file) return;
  SquashOptions options;
  options.block_bytes = 4096;
  options.workers = 1;
  ImportBudget budget;
  budget.file_size = uint64_t{1} << 20U;
  budget.unpacked = uint64_t{4} << 20U;
  ImportMeter meter(budget);
  ImageConfig config;
  config.workdir = "/w/x";
  ImageBuilder builder(file->get(), "image", options, blobs, meter);
  const auto built = builder.build([&](const std::vector<Blob>& wanted) { return open_stream(layers, wanted); }, config,
                                   "docker://registry.test/x:1");
  struct stat status {};
  if (!built || fstat(file->get(), &status) != 0) return;
  if (built->image_bytes != static_cast<uint64_t>(status.st_size)) std::abort();
  check_built(file->get());
}
