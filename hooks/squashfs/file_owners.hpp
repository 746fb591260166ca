// Whom do the files of a squashfs file belong to? All to 0, unless it is said of one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "hooks/squashfs/layout.hpp"

namespace situla {

class FileOwners {
 public:
  /// Places in the table of ids.
  struct Places {
    uint16_t uid = squashfs::kUserIndex, gid = squashfs::kGroupIndex;
  };

  /// inode: of the table of a RootTree. Of more than 65,535 different numbers the last ones stay 0.
  void set(uint32_t inode, uint32_t uid, uint32_t gid) {
    if (uid == 0 && gid == 0) return;
    if (places_.size() <= inode) places_.resize(size_t{inode} + 1);
    places_[inode] = {place_of(uid, squashfs::kUserIndex), place_of(gid, squashfs::kGroupIndex)};
  }
  [[nodiscard]] Places of(uint32_t inode) const { return inode < places_.size() ? places_[inode] : Places{}; }
  /// Those of OwnIdTable come first.
  [[nodiscard]] const std::vector<uint32_t>& ids() const { return ids_; }

 private:
  uint16_t place_of(uint32_t id, uint16_t of_zero) {
    constexpr size_t kMost = 65535;
    if (id == 0 || (ids_.size() == kMost && !known_.contains(id))) return of_zero;
    const auto [place, is_new] = known_.emplace(id, static_cast<uint16_t>(ids_.size()));
    if (is_new) ids_.push_back(id);
    return place->second;
  }

  std::vector<uint32_t> ids_ = std::vector<uint32_t>(squashfs::kIdCount, 0);
  std::map<uint32_t, uint16_t> known_;
  std::vector<Places> places_;
};

}  // namespace situla
