// Whom do the files of an image belong to, in the user namespace of who shows or extracts them?
#pragma once

#include <cstdint>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "hooks/unpack/image_access.hpp"

namespace situla {

class ImageOwners {
 public:
  /// All of them to one.
  ImageOwners(uid_t uid, gid_t gid) : uids_{uid}, gids_{gid} {}
  /// To whom the image says (names_owners()), where the namespace has a range; else to uid/gid, who is 0 in images.
  static Result<ImageOwners> of(ImageAccess& image, const NamespaceIds& ids, uid_t uid, gid_t gid);

  [[nodiscard]] bool several() const { return uids_.size() > 1; }
  /// Of no file in particular: the user's own.
  [[nodiscard]] uid_t uid() const { return uids_.back(); }
  [[nodiscard]] gid_t gid() const { return gids_.back(); }
  [[nodiscard]] uid_t uid_of(const StoredInode& inode) const { return at(uids_, inode.owner); }
  [[nodiscard]] gid_t gid_of(const StoredInode& inode) const { return at(gids_, inode.group); }

 private:
  ImageOwners() = default;
  /// The last one serves for what the image does not have.
  static uint32_t at(const std::vector<uint32_t>& ids, uint16_t place) {
    return place < ids.size() ? ids[place] : ids.back();
  }
  std::vector<uint32_t> uids_, gids_;  ///< by the image's numbers of them, and the user's own
};

}  // namespace situla
