// Is there room in the store for one more image, and what goes when there is none?
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/store/image_store.hpp"
#include "hooks/turn/limits.hpp"

namespace situla {

struct Disk {
  uint64_t total = 0, free = 0;  ///< bytes; total 0: a file system that counts nothing (some FUSE, autofs)
  /// What stays free where no reserve is set.
  [[nodiscard]] uint64_t reserve() const { return std::min(total / 20, uint64_t{2} << 30U); }
};
Result<Disk> disk_of(const std::string& path);
/// When something has just been removed: XFS, Btrfs and ZFS give back what it took a while later. Waits until so many
/// bytes are free, for a second at most.
Result<Disk> disk_with_free(const std::string& path, uint64_t wanted);

/// What the administrator lets the store take. 0: no limit.
struct StoreLimits {
  std::optional<uint64_t> reserve;  ///< bytes that stay free in its file system
  DiskShare per_user;               ///< of it, for the images imported for one user
  DiskShare all{};                  ///< of it, for all images
  std::chrono::seconds age{0};      ///< images that nobody has asked for in that time go; 0: they stay
};

/// Room for one import of one user. Images go that no process of this node has open: for the user's own limit his own,
/// for the reserve those of whoever has most in the store; first those that nobody asked for for longest.
class StoreRoom {
 public:
  StoreRoom(const ImageStore& store, uid_t uid, const StoreLimits& limits)
      : store_(store), uid_(uid), limits_(limits) {}

  /// For a file of so many bytes, beside those that other imports write now. ErrorKind::no_space with both numbers;
  /// that other users write files keeps nobody from his, but images go for them, too.
  /// to_write: of these, what the disk does not hold yet.
  Result<void> make(uint64_t bytes, const ImportSlot::InFlight& others, uint64_t to_write = 0);
  /// An importer says that the disk is full, whatever the limits say: if it is, some images go, for a while's writing.
  /// ErrorKind::no_space with numbers when none goes.
  Result<void> make_some() const;
  /// Of all users' images those of which StoreLimits::age says so. now: seconds since the epoch.
  void drop_old(uint64_t now) const;

 private:
  Result<void> make_of_user(uint64_t bytes, uint64_t limit);
  Result<void> make_of_all(uint64_t bytes, uint64_t others, uint64_t limit);
  Result<void> keep_reserve(uint64_t to_write);
  void look();

  const ImageStore& store_;
  uid_t uid_;
  StoreLimits limits_;
  std::optional<ImageStore::Version> seen_;
  uint64_t stored_ = 0;  ///< of this user, at that version
  uint64_t all_ = 0;     ///< of all images
};

}  // namespace situla
