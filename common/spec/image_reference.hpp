// What does the user mean by an image name? A place, a registry, a repository, a tag or digest. COMPAT.md sections 1
// and 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/environment.hpp"

namespace situla {

/// Where docker.io's images are.
constexpr std::string_view kDockerHub = "registry-1.docker.io";

/// A reference to an image in a registry, every field filled in by the rules of COMPAT.md 3:
/// `[docker://][USER@][REGISTRY#]IMAGE[:TAG][@DIGEST]` and `[docker://][USER@]REGISTRY/IMAGE...` where REGISTRY has a
/// '.' or a ':'.
struct ImageReference {
  std::string user;        ///< login to look up in the credentials; empty: infer it
  std::string registry;    ///< host or host:port to talk to; Docker Hub is "registry-1.docker.io"
  std::string repository;  ///< "library/ubuntu", "nvidia/pytorch"
  std::string tag;         ///< "latest" when the user gave neither tag nor digest; may be empty when a digest is given
  std::optional<Digest> digest;  ///< counts more than the tag when both are given

  /// Parses any of the forms. ErrorKind::usage with the offending part named; hint where a slip is common.
  static Result<ImageReference> parse(std::string_view text);

  /// Registry host without the port, as `machine` in .credentials names it.
  [[nodiscard]] std::string registry_host() const;
  /// What follows /manifests/ in the distribution API: the digest if there is one, else the tag.
  [[nodiscard]] std::string manifest_name() const;
  /// "registry/repository:tag@digest" for messages and records; never holds the user.
  [[nodiscard]] std::string text() const;
  /// enroot's default file name: "nvidia+pytorch+24.10-py3.sqsh" (COMPAT.md 3; `library/` dropped).
  [[nodiscard]] std::string default_file_name() const;
};

/// The hint for who wrote "docker:ubuntu", which is the tag "ubuntu" of the image "docker": "did you mean
/// docker://ubuntu?"; empty for all else.
std::string meant_scheme(std::string_view text);

/// What can follow the colon of a reference (distribution-spec, <reference> as a tag).
bool is_tag(std::string_view text);

/// Where an image is. Decided by the name alone: what begins with '.', '/', '~' or '$' is a path (COMPAT.md 1), and
/// what ends in ".sqsh", ".squashfs" or ".sif", unless it says that it is in a registry.
enum class ImageKind {
  registry,
  path,            ///< a squashfs file
  docker_daemon,   ///< dockerd://IMAGE
  podman,          ///< podman://IMAGE
  oci_layout,      ///< oci:DIR[:TAG]
  oci_archive,     ///< oci-archive:FILE[:TAG]
  docker_archive,  ///< docker-archive:FILE[:TAG], written by `docker save`
  directory,       ///< dir:DIR, written by skopeo
};
ImageKind image_kind(std::string_view text);
/// Of an image of ImageKind::path: variables of the job and a leading "~/" are replaced, since a line #SBATCH is seen
/// by no shell.
std::string image_path(std::string_view image, const Environment& environment);
/// One spelling of what means the same image: the reference with its registry, the absolute path of a file.
std::string full_image_name(std::string_view image, const Environment& environment, std::string_view directory);

/// An image in files, as containers-transports(5) writes it: `TRANSPORT:PATH[:NAME]`. The path ends at the first ':';
/// only `dir:` has no name, so there ':' belongs to the path.
struct FileReference {
  ImageKind kind = ImageKind::oci_layout;
  std::string path;               ///< as typed
  std::string name;               ///< tag, or whole reference for an archive of Docker's; may be empty
  std::optional<uint64_t> index;  ///< `@N` instead of a name: the image's place, counted from 0

  /// ErrorKind::usage for other kinds, too.
  static Result<FileReference> parse(std::string_view text);
  /// As typed, printable.
  [[nodiscard]] std::string text() const;
  /// "ubuntu.sqsh" for docker-archive:/data/ubuntu.tar:22.04.
  [[nodiscard]] std::string default_file_name() const;
};

/// An image in the storage of an engine on this machine: `dockerd://IMAGE[:TAG]`, `podman://IMAGE[:TAG]`.
struct EngineReference {
  ImageKind kind = ImageKind::docker_daemon;
  std::string name;  ///< as typed; only characters that image names have, and no '-' in front

  static Result<EngineReference> parse(std::string_view text);
  /// With ":latest" unless there is a tag, or it is a digest or an image's id: engines take a bare name for all tags.
  [[nodiscard]] std::string exact_name() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string default_file_name() const;
};

/// Whether text is well-formed for its kind. ErrorKind::usage.
Result<void> check_image(std::string_view text);
/// The file that `import` writes when none is named (COMPAT.md 3). Not for ImageKind::path.
Result<std::string> default_file_name(std::string_view text);

}  // namespace situla
