// How does a user's own squashfs file appear as a directory without root and without extraction? By FUSE, served by a
// process of ours: one for a container's root, and one for all images that are mounted in it.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Whether images can be served here, and if not, why: /dev/fuse opens.
Result<void> fuse_available();

/// The process behind a mount. It ends by itself when the mount is gone, so nobody has to hold this.
struct ImageServer {
  pid_t pid = -1;
  UniqueFd pidfd;  ///< none on kernels before 5.3
  [[nodiscard]] explicit operator bool() const { return pid > 0; }
};

/// Mounts the image on `mountpoint`, read-only, nosuid, nodev, in the calling process's mount namespace, and starts its
/// server: no child of the caller, in a session and a mount namespace of its own, with no descriptor but the image, no
/// capability and every signal but SIGKILL blocked. The caller is single-threaded and has mounting rights in its user
/// namespace, in which every file will belong to uid/gid; if that has a range (id_maps.hpp) and the image several
/// owners, to whom the image says, with uid/gid in the place of 0. The image needs to be readable through the
/// descriptor only. ErrorKind::corrupt for what is no image. When the server is killed, every access gives an error
/// instead of hanging.
Result<ImageServer> serve_image(int image_fd, const std::string& mountpoint, uid_t uid, gid_t gid, LogSink& log);

/// A file or directory of an image, as it is shown by the server.
struct ImagePart {
  UniqueFd fd;  ///< O_PATH: to be bound somewhere
  bool is_directory = false;
};

/// Images in a container's mounts. The first starts a server as serve_image() does, which has them all until the last
/// mount is gone. What is needed of the caller, too, is as there. There they are in one file system, of which the
/// mounts are parts: to make and to end a file system for each takes longer (tests/bench/shards).
class MountedImages {
 public:
  /// place: a directory of the caller's, in which a mount point is made. It should not outlive the mount namespace.
  explicit MountedImages(std::string place) : place_(std::move(place)) {}

  /// Gives an image to the server, which opens it while the caller goes on; several in one packet. `inside`: a path in
  /// it, whose links are followed within it; may be empty. Returns the number under which it can be taken. The image
  /// need not be trusted.
  Result<uint64_t> give(UniqueFd image, const std::string& inside);
  /// Read-only, nosuid and nodev. Every file belongs to the caller's ids (euid, egid). In the order of the numbers;
  /// one that is passed over cannot be had any more.
  Result<ImagePart> take(uint64_t number);
  /// That have been given, and neither taken nor passed over.
  [[nodiscard]] size_t waiting() const { return given_.size(); }
  /// Whether one has been taken.
  [[nodiscard]] bool has_any() const { return device_.has_value(); }

 private:
  struct Given {
    UniqueFd image;
    std::string inside;
  };

  Result<void> start_server();
  Result<void> send_next();
  Result<void> await(uint64_t number);
  std::string place_;
  UniqueFd server_;     ///< a socket, on which images are given to it
  UniqueFd directory_;  ///< in which they appear
  UniqueFd listing_;    ///< the same, open for reading
  std::deque<Given> given_;
  size_t unsent_ = 0;  ///< the last ones of given_
  /// The number of the last that was sent.
  [[nodiscard]] uint64_t sent() const { return taken_ + given_.size() - unsent_; }
  uint64_t taken_ = 0;           ///< the last number that was
  uint64_t answered_ = 0;        ///< the last that the server has opened, or could not
  uint64_t listed_ = 0;          ///< the last that the kernel has been told of
  bool has_one_ = false;         ///< the server has opened one: before that there is nothing to list
  std::optional<dev_t> device_;  ///< of their file system, when one is there
};

}  // namespace situla
