// Which container is this? One that comes to the same path or inode number later is another one.
//
// 128 random bits, in the file `.situla-id` of its directory: written when the container is made, and gone with it. It
// lies in the user's own directory, so a user can forge it, but only for containers of his own: who asks which
// container runs looks among those of one user id only.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

/// Left out of exports; an image's file of that name is replaced.
constexpr std::string_view kIdentityFile = ".situla-id";

/// 32 hexadecimal digits.
bool is_container_identity(std::string_view text);

/// What a container was made of, and when.
struct ContainerOrigin {
  std::string image;  ///< a reference with its registry, or an absolute path; printable
  std::chrono::system_clock::time_point made;
};

/// For a directory that is being made and that nobody else knows yet. image: ContainerOrigin::image; may be empty.
Result<void> write_identity(int directory_fd, std::string_view image);
/// Empty: it has none, or what it has is no identity.
std::string identity_of(int directory_fd);
/// Nothing of a container that was made by enroot, by hand or by an older release.
std::optional<ContainerOrigin> origin_of(int directory_fd);
/// Gives one to a container that was made by enroot or by hand. Whoever else does so at the same time gets the same.
/// Empty: it has none and none can be written (a read-only file system). Then nothing but an open descriptor tells
/// which container it is.
std::string ensure_identity(int directory_fd);

}  // namespace situla
