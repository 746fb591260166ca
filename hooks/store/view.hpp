// How do an image's files belong to a job's user where the kernel cannot id-map squashfs (before Linux 6.2)? The image
// says whose they are with eight bytes (squashfs::OwnIdTable): a view is the image with other ones.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

struct Owner {
  uid_t user = 0;
  gid_t group = 0;
};

/// A file without a name beside the image, mode 0400 and open for reading, that has all blocks with the image in common
/// but for one. directory: where images lie. ErrorKind::unsupported: the file system cannot share blocks (ext4, tmpfs),
/// or the image is not as our own importer makes it; then there is no view of it at all.
Result<UniqueFd> share_view(const std::string& directory, int image, Owner owner);

/// What takes the place of some of the image's bytes, for a block device that is put together of both.
struct ViewBlocks {
  UniqueFd memory;      ///< sealed memory file of whole blocks
  uint64_t offset = 0;  ///< in the image; whole blocks
};
/// ErrorKind::unsupported: the image is not as our own importer makes it.
Result<ViewBlocks> view_blocks(int image, Owner owner);

}  // namespace situla
