#include "hooks/unpack/image_owners.hpp"

namespace situla {

Result<ImageOwners> ImageOwners::of(ImageAccess& image, const NamespaceIds& ids, uid_t uid, gid_t gid) {
  if (!ids.range()) return ImageOwners(uid, gid);
  TRY_ASSIGN(const std::vector<uint32_t> stored, image.owners());
  if (!names_owners(stored)) return ImageOwners(uid, gid);
  ImageOwners owners;
  for (const uint32_t id : stored) {
    owners.uids_.push_back(id == 0 ? uid : ids.inside_uid(id));
    owners.gids_.push_back(id == 0 ? gid : ids.inside_gid(id));
  }
  owners.uids_.push_back(uid);
  owners.gids_.push_back(gid);
  return owners;
}

}  // namespace situla
