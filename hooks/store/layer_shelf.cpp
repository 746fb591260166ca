#include "hooks/store/layer_shelf.hpp"

#include <filesystem>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/import/layer_cache.hpp"

namespace situla {
namespace {

constexpr mode_t kShelfMode = 0700;
constexpr unsigned kIndexMode = 0400;
constexpr size_t kMostLayers = 512;  // more are not kept: each is an open file until the image has its name

std::string name_of(const Digest& layer, const std::string& kind) {
  return layer.hex() + "." + kind;
}

}  // namespace

bool is_layer_kind(const std::string& kind) {
  return !kind.empty() && kind.size() <= 64 &&
         kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

LayerShelf::LayerShelf(const ImageStore& store, uid_t uid, const std::string& registry, std::string origin)
    : store_(store), directory_(store.layers(uid) + "/" + registry), origin_(std::move(origin)) {}

void LayerShelf::list() {
  if (std::exchange(listed_, true)) return;
  const auto origins = list_directory(directory_);
  if (!origins) return;
  for (const std::string& origin : *origins) {
    const auto names = list_directory(directory_ + "/" + origin);
    if (!names) continue;
    for (const std::string& name : *names)
      if (const auto pieces = cut(name, '@'))
        places_.emplace(std::string(pieces->first), Place{origin, std::string(pieces->second)});
  }
}

bool LayerShelf::is_foreign(const Place& place) const {
  return place.origin != origin_ || is_of_one_user(place.image);
}

std::optional<LayerShelf::Found> LayerShelf::find(const Digest& layer, const std::string& kind) {
  if (!is_layer_kind(kind)) return std::nullopt;
  list();
  const std::string name = name_of(layer, kind);
  const auto [begin, end] = places_.equal_range(name);
  std::vector<Place> places;
  for (auto it = begin; it != end; ++it)
    places.insert(is_foreign(it->second) ? places.end() : places.begin(), it->second);
  for (const Place& place : places) {
    const std::string path = directory_ + "/" + place.origin + "/" + name + "@" + place.image;
    auto donor = store_.find_named(place.image);
    if (!donor) {
      unlink(path.c_str());
      continue;
    }
    auto index = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    if (!index) continue;
    (void)utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // trim_indexes() goes by it
    return Found{std::move(*index), std::move(*donor), place.image, is_foreign(place)};
  }
  return std::nullopt;
}

Result<OutputFile> LayerShelf::create() const {
  const std::string directory = directory_ + "/" + origin_;
  TRY(make_directories(directory, kShelfMode));
  (void)utimensat(AT_FDCWD, directory.c_str(), nullptr, 0);  // trim_indexes() takes away what has long been empty
  return OutputFile::create(directory + "/new");
}

void LayerShelf::put(OutputFile& index, const Digest& layer, const std::string& kind, const std::string& image) {
  list();
  const std::string name = name_of(layer, kind);
  const std::string prefix = directory_ + "/" + origin_ + "/" + name + "@";
  const auto [begin, end] = places_.equal_range(name);
  for (auto it = begin; it != end;) {
    // What is one user's is no substitute for what everybody may have.
    const bool replaced = it->second.origin == origin_ && (is_of_one_user(it->second.image) || !is_of_one_user(image));
    if (replaced) unlink((prefix + it->second.image).c_str());
    it = replaced ? places_.erase(it) : std::next(it);
  }
  // Not synced: what is damaged is noticed when it is read.
  if (index.replace_as(prefix + image, kIndexMode)) places_.emplace(name, Place{origin_, image});
}

uint64_t LayerShelf::bytes_of(const ImageStore& store, uid_t uid) {
  namespace fs = std::filesystem;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(store.layers(uid), error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (it->is_regular_file(gone) && !gone) bytes += it->file_size(gone);
  }
  return bytes;
}

int NewIndexes::begin(const Digest& layer, const std::string& kind) {
  auto file = indexes_.size() < kMostLayers && is_layer_kind(kind) ? shelf_.create() : fail(ErrorKind::unsupported, "");
  if (!file) return -1;
  indexes_.push_back({layer, kind, std::move(*file)});
  return indexes_.back().file.fd();
}

uint64_t NewIndexes::bytes() const {
  uint64_t bytes = 0;
  for (const Index& index : indexes_) {
    struct stat status {};
    if (fstat(index.file.fd(), &status) == 0) bytes += static_cast<uint64_t>(status.st_size);
  }
  return bytes;
}

void NewIndexes::keep(const std::string& image) {
  uint64_t bytes = 0;
  for (Index& index : indexes_) {
    struct stat status {};
    if (!index.file.seal() || !wait_for_writers(index.file.fd()) || fstat(index.file.fd(), &status) != 0) break;
    bytes += static_cast<uint64_t>(status.st_size);
    if (bytes > kMostIndexBytes) break;
    shelf_.put(index.file, index.layer, index.kind, image);
  }
}

}  // namespace situla
