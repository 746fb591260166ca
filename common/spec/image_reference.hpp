// What does the user mean by an image name? A place, a registry, a repository, a tag or digest. COMPAT.md sections 1
// and 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"

namespace situla {

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

/// Where `--container-image` points to. Decided by the first characters only (COMPAT.md 1): '.' or '/' is a path.
enum class ImageKind { registry, path, docker_daemon, podman };
ImageKind image_kind(std::string_view text);

}  // namespace situla
