#include "common/base/parts.hpp"
#include "hooks/mount/image_mount.hpp"

namespace situla {

Result<void> fuse_available() {
  return fail(not_built_in(Part::fuse, "serve the image"));
}

Result<ImageServer> serve_image(int, const std::string&, uid_t, gid_t, LogSink&) {
  return fail(not_built_in(Part::fuse, "serve the image"));
}

Result<uint64_t> MountedImages::give(UniqueFd, const std::string&) {
  return fail(not_built_in(Part::fuse, "serve the image"));
}

Result<ImagePart> MountedImages::take(uint64_t) {
  return fail(not_built_in(Part::fuse, "serve the image"));
}

}  // namespace situla
