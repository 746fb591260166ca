#include "hooks/import/layer_cache.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "hooks/import/block_seal.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla {
namespace {

constexpr unsigned kIndexMode = 0600;

Result<PrivateDirectory> own_directory(const std::string& place, const std::string& name) {
  if (place.empty()) return fail(ErrorKind::not_found, "no cache");
  TRY_ASSIGN(const PrivateDirectory own, PrivateDirectory::own_within(place, "situla", "ENROOT_CACHE_PATH"));
  return PrivateDirectory::open_or_make(own.held(name), "ENROOT_CACHE_PATH");
}

}  // namespace

std::string block_kind(const SquashOptions& options) {
  return std::string(name_of(options.compressor)) + "-" + std::to_string(options.block_bytes);
}

std::shared_ptr<const SquashfsDonor> Donors::get(const LayerIndexHead& head,
                                                 const std::function<Result<UniqueFd>()>& open) {
  const auto [known, fresh] = donors_.try_emplace({head.donor, head.key});
  if (fresh) {
    auto fd = open();
    if (!fd) return nullptr;
    if (auto seen = FileIdentity::of(fd->get())) known->second.seen = *seen;
    auto donor = SquashfsDonor::open(std::move(*fd), head.donor);
    if (donor && (*donor)->fits(options_)) {
      (*donor)->check_with(std::make_unique<BlockSeal>(head.key));
      known->second.donor = std::move(*donor);
    }
  }
  return known->second.seen == head.seen ? known->second.donor : nullptr;
}

DirectoryLayerCache::DirectoryLayerCache(const std::string& place, const std::string& name,
                                         const SquashOptions& options)
    : directory_(own_directory(place, name)), options_(options), donors_(options) {}

/// Only where there is a directory.
std::string DirectoryLayerCache::path_of(const Digest& layer) const {
  return directory_->held(layer.hex() + "." + block_kind(options_));
}

std::optional<KnownLayer> DirectoryLayerCache::find(const Digest& layer) {
  if (!directory_) return std::nullopt;
  auto index = LayerIndex::read(path_of(layer));
  if (!index || index->head().layer != layer) return std::nullopt;
  const std::string& name = index->head().donor;
  auto donor = donors_.get(index->head(), [&] { return open_file(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK); });
  if (donor == nullptr) return std::nullopt;
  std::error_code ignored;  // trim() takes those first that nobody has used for long
  std::filesystem::last_write_time(path_of(layer), std::filesystem::file_time_type::clock::now(), ignored);
  return KnownLayer{std::move(*index), std::move(donor)};
}

Result<void> DirectoryLayerCache::put(const LayerIndexHead& head, const WriteEntries& write_entries) {
  if (!directory_) return fail(directory_.error());
  if (const auto other = find(head.layer); other && other->index.head().stored_bytes > head.stored_bytes) return {};
  TRY_ASSIGN(OutputFile file, OutputFile::create(path_of(head.layer)));
  LayerIndexWriter writer(head, [&](std::string_view bytes) { return write_all(file.fd(), bytes); });
  TRY(write_entries(writer));
  TRY(writer.finish());
  TRY(file.replace(kIndexMode));
  return {};
}

void DirectoryLayerCache::trim() const {
  if (directory_) trim_indexes(directory_->held());
}

namespace {

namespace fs = std::filesystem;

/// Who writes an index has made its directory, or touched it, a moment ago.
void remove_empty_directories(const fs::path& directory) {
  constexpr std::chrono::hours kStays{1};
  const auto before = fs::file_time_type::clock::now() - kStays;
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone) && it->last_write_time(gone) < before && !gone) old.push_back(it->path());
  }
  // What lies in one comes after it.
  for (auto it = old.rbegin(); it != old.rend(); ++it) (void)rmdir(it->c_str());
}

}  // namespace

/// Errors are left alone: the next import trims again.
void trim_indexes(const std::string& directory) {
  struct Index {
    fs::file_time_type time;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Index> indexes;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->is_regular_file(gone) || it->path().filename().string().starts_with('.')) continue;
    const Index index{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone) continue;
    bytes += index.bytes;
    indexes.push_back(index);
  }
  std::sort(indexes.begin(), indexes.end(), [](const Index& a, const Index& b) { return a.time < b.time; });
  size_t left = indexes.size();
  for (const Index& index : indexes) {
    if (left <= kMostIndexes && bytes <= kMostIndexBytes) break;
    if (!fs::remove(index.path, error)) continue;
    bytes -= index.bytes;
    --left;
  }
  remove_empty_directories(directory);
}

}  // namespace situla
