#include "hooks/import/layer_cache.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fcntl.h>

#include "common/sys/file.hpp"
#include "hooks/import/output_file.hpp"

namespace situla {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr unsigned kIndexMode = 0600;

std::string suffix_of(const SquashOptions& options) {
  const auto name = [&] {
    switch (options.compressor) {
      case SquashOptions::Compressor::gzip:
        return "gzip";
      case SquashOptions::Compressor::lzo:
        return "lzo";
      case SquashOptions::Compressor::lz4:
        return "lz4";
      case SquashOptions::Compressor::xz:
        return "xz";
      case SquashOptions::Compressor::zstd:
        break;
    }
    return "zstd";
  }();
  return std::string(name) + "-" + std::to_string(options.block_bytes);
}

}  // namespace

DirectoryLayerCache::DirectoryLayerCache(std::string directory, const SquashOptions& options)
    : directory_(std::move(directory)), options_(options) {}

std::string DirectoryLayerCache::path_of(const Digest& layer) const {
  return directory_ + "/" + layer.hex() + "." + suffix_of(options_);
}

std::shared_ptr<const SquashfsDonor> DirectoryLayerCache::open_donor(const LayerIndexHead& head) {
  auto known = donors_.find(head.donor);
  if (known == donors_.end()) {
    known = donors_.emplace(head.donor, Opened()).first;
    auto fd = open_file(head.donor, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!fd) return nullptr;
    if (auto identity = FileIdentity::of(fd->get())) known->second.identity = *identity;
    auto donor = SquashfsDonor::open(std::move(*fd), head.donor);
    if (donor && (*donor)->fits(options_)) known->second.donor = std::move(*donor);
  }
  return known->second.identity == head.identity ? known->second.donor : nullptr;
}

std::optional<KnownLayer> DirectoryLayerCache::find(const Digest& layer) {
  auto index = LayerIndex::read(path_of(layer));
  if (!index || index->head().layer != layer) return std::nullopt;
  auto donor = open_donor(index->head());
  if (donor == nullptr) return std::nullopt;
  std::error_code ignored;  // trim() takes those first that nobody has used for long
  std::filesystem::last_write_time(path_of(layer), std::filesystem::file_time_type::clock::now(), ignored);
  return KnownLayer{std::move(*index), std::move(donor)};
}

Result<void> DirectoryLayerCache::put(LayerIndexHead head, const WriteEntries& write_entries) {
  if (const auto other = find(head.layer)) {
    const LayerIndexHead& known = other->index.head();
    if (known.stored_bytes > head.stored_bytes) return {};
    for (const std::string& repository : known.repositories)
      if (known.registry == head.registry &&
          std::find(head.repositories.begin(), head.repositories.end(), repository) == head.repositories.end())
        head.repositories.push_back(repository);
  }
  TRY(make_directories(directory_, kDirectoryMode));
  TRY_ASSIGN(OutputFile file, OutputFile::create(path_of(head.layer)));
  LayerIndexWriter writer(head, [&](std::string_view bytes) { return write_all(file.fd(), bytes); });
  TRY(write_entries(writer));
  TRY(writer.finish());
  TRY(file.replace(kIndexMode));
  return {};
}

/// Names only what is ours. Errors are left alone: the next import trims again.
void DirectoryLayerCache::trim() const {
  namespace fs = std::filesystem;
  struct Index {
    fs::file_time_type time;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Index> indexes;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const Index index{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone || it->path().filename().string().starts_with('.')) continue;
    bytes += index.bytes;
    indexes.push_back(index);
  }
  if (indexes.size() <= kMostIndexes && bytes <= kMostBytes) return;
  std::sort(indexes.begin(), indexes.end(), [](const Index& a, const Index& b) { return a.time < b.time; });
  size_t left = indexes.size();
  for (const Index& index : indexes) {
    if (left <= kMostIndexes && bytes <= kMostBytes) return;
    if (!fs::remove(index.path, error)) continue;
    bytes -= index.bytes;
    --left;
  }
}

}  // namespace situla
