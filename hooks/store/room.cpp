#include "hooks/store/room.hpp"

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include <sys/statvfs.h>

#include "common/base/text.hpp"
#include "hooks/store/layer_shelf.hpp"

namespace situla {
namespace {

/// Those that are not in use, in their order, until so many bytes are gone. Returns how many went.
uint64_t remove_unused(const ImageStore& store, const std::vector<StoredImage>& images, uint64_t bytes) {
  uint64_t gone = 0;
  for (const StoredImage& image : images) {
    if (gone >= bytes) break;
    if (store.remove_unused(image.name)) gone += image.bytes;
  }
  return gone;
}

/// First those of the user who has most.
uint64_t remove_of_greatest(const ImageStore& store, uint64_t bytes) {
  auto images = store.list();
  std::map<std::optional<uid_t>, uint64_t> taken;
  for (const StoredImage& image : images) taken[image.record.uid] += image.bytes;
  std::stable_sort(images.begin(), images.end(), [&](const StoredImage& a, const StoredImage& b) {
    return taken[a.record.uid] > taken[b.record.uid];
  });
  return remove_unused(store, images, bytes);
}

/// For a hint: what keeps images that nobody may be using.
std::string why_images_stay(const ImageStore& store, const std::string& otherwise) {
  for (const StoredImage& image : store.list())
    if (!image.pinned && store.is_use_unknown(image.name))
      return "the store's file system cannot tell which images are in use, and so none goes by itself (administrators: "
             "situla rm --force)";
  return otherwise;
}

}  // namespace

Result<Disk> disk_of(const std::string& path) {
  struct statvfs status {};
  if (statvfs(path.c_str(), &status) != 0) return fail_errno(errno, "ask for the free space of " + path);
  return Disk{uint64_t{status.f_blocks} * status.f_frsize, uint64_t{status.f_bavail} * status.f_frsize};
}

Result<Disk> disk_with_free(const std::string& path, uint64_t wanted) {
  constexpr std::chrono::milliseconds kPause{20}, kLongest{1000};
  for (const auto end = std::chrono::steady_clock::now() + kLongest;; std::this_thread::sleep_for(kPause)) {
    TRY_ASSIGN(const Disk disk, disk_of(path));
    if (disk.free >= wanted || std::chrono::steady_clock::now() > end) return disk;
  }
}

Result<void> StoreRoom::make(uint64_t bytes, const ImportSlot::InFlight& others, uint64_t to_write) {
  TRY_ASSIGN(const Disk disk, disk_of(store_.directory()));
  if (const uint64_t limit = limits_.per_user.of(disk.total); limit > 0)
    TRY(make_of_user(bytes + others.of_user, limit));
  if (const uint64_t limit = limits_.all.of(disk.total); limit > 0) TRY(make_of_all(bytes, others.of_all, limit));
  return keep_reserve(to_write);
}

void StoreRoom::look() {
  const auto version = store_.version();
  if (version && seen_ == version) return;
  seen_ = version;
  stored_ = LayerShelf::bytes_of(store_, uid_);
  all_ = 0;
  for (const StoredImage& image : store_.list()) {
    all_ += image.bytes;
    if (image.record.uid == uid_) stored_ += image.bytes;
  }
}

Result<void> StoreRoom::make_of_user(uint64_t bytes, uint64_t limit) {
  look();
  // No use in removing what would not be enough.
  if (stored_ + bytes > limit && bytes <= limit) {
    auto images = store_.list();
    std::erase_if(images, [&](const StoredImage& image) { return image.record.uid != uid_; });
    remove_unused(store_, images, stored_ + bytes - limit);
    seen_.reset();
    look();
  }
  if (stored_ + bytes <= limit) return {};
  return fail(
      Error(ErrorKind::no_space, "the images of uid " + std::to_string(uid_) + " in the store take " +
                                     format_size(stored_ + bytes) + " with this one, and may take " +
                                     format_size(limit))
          .with_code(ErrorCode::store_full)
          .with_hint(
              why_images_stay(store_, "images that steps use now, or used some minutes ago, are not removed for it") +
              ": try again later, or use a file of your own (situla import -o FILE); administrators: "
              "bytes_per_user in /etc/situla/situla.toml"));
}

Result<void> StoreRoom::make_of_all(uint64_t bytes, uint64_t others, uint64_t limit) {
  look();
  if (const uint64_t wanted = all_ + bytes + others; wanted > limit && bytes <= limit) {
    remove_unused(store_, store_.list(), wanted - limit);
    seen_.reset();
    look();
  }
  if (all_ + bytes <= limit) return {};
  return fail(
      Error(ErrorKind::no_space, "all images in the store take " + format_size(all_ + bytes) +
                                     " with this one, and may take " + format_size(limit))
          .with_code(ErrorCode::store_full)
          .with_hint(why_images_stay(store_, "images that steps use now, and pinned ones, are not removed for it") +
                     ": try again later, or use a file of your own (situla import -o FILE); administrators: store_max "
                     "in /etc/situla/situla.toml"));
}

void StoreRoom::drop_old(uint64_t now) const {
  if (limits_.age.count() == 0) return;
  for (const StoredImage& image : store_.list()) {
    if (static_cast<uint64_t>(image.used.tv_sec) + static_cast<uint64_t>(limits_.age.count()) > now) return;
    (void)store_.remove_unused(image.name);
  }
}

Result<void> StoreRoom::keep_reserve(uint64_t to_write) {
  TRY_ASSIGN(Disk disk, disk_of(store_.directory()));
  const uint64_t reserve = limits_.reserve.value_or(disk.reserve());
  const uint64_t wanted = disk.total == 0 ? 0 : reserve + std::min(to_write, UINT64_MAX - reserve);
  // No use in removing what would not be enough for what another node says that the image has.
  uint64_t most = disk.free;
  if (to_write > 0)
    for (const StoredImage& image : store_.list()) most += image.bytes;
  if (disk.free < wanted && (to_write == 0 || wanted <= most))
    if (const uint64_t gone = remove_of_greatest(store_, wanted - disk.free); gone > 0) {
      TRY_ASSIGN(disk, disk_with_free(store_.directory(), std::min(wanted, disk.free + gone)));
    }
  if (disk.free >= wanted) return {};
  return fail(Error(ErrorKind::no_space, "the image store " + store_.directory() + " has " + format_size(disk.free) +
                                             " free, and " + format_size(reserve) + " have to stay so" +
                                             (to_write == 0 ? "" : " beside this image of " + format_size(to_write)))
                  .with_code(ErrorCode::store_full)
                  .with_hint(why_images_stay(store_, "no image in it is unused") +
                             ": try again later or on another node, or use a file of your own (situla import -o "
                             "FILE); administrators: make room on its disk, or see store_reserve in "
                             "/etc/situla/situla.toml"));
}

Result<void> StoreRoom::make_some() const {
  constexpr uint64_t kSome = uint64_t{256} << 20U;
  TRY_ASSIGN(const Disk disk, disk_of(store_.directory()));
  // Whoever says so has read foreign bytes, and could otherwise empty the store.
  if (disk.free < kSome)
    if (const uint64_t gone = remove_of_greatest(store_, kSome); gone > 0) {
      (void)disk_with_free(store_.directory(), disk.free + std::min(gone, kSome));
      return {};
    }
  uint64_t all = 0;
  for (const StoredImage& image : store_.list()) all += image.bytes;
  return fail(
      Error(ErrorKind::no_space, "No space left on device: the image store " + store_.directory() + " has " +
                                     format_size(disk.free) + " of " + format_size(disk.total) + " free, images take " +
                                     format_size(all))
          .with_code(disk.free >= kSome ? ErrorCode::disk_full : ErrorCode::store_full)
          .with_hint(
              disk.free >= kSome
                  ? "use a file of your own (situla import -o FILE); administrators: a disk quota of the service "
                    "user or of that directory may be used up"
                  : why_images_stay(store_, "no image in it is unused") +
                        ": try again later or on another node, or use a file of your own (situla import -o FILE); "
                        "administrators: make room on its disk, or see store_max and store_reserve in "
                        "/etc/situla/situla.toml"));
}

}  // namespace situla
