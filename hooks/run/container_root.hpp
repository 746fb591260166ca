// How do an image or a directory become the root file system of a container? As a mount with a layer of its own on top.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process.hpp"
#include "hooks/run/prepare.hpp"

namespace situla {

struct RootRequest {
  std::string stage;            ///< see PrepareRequest
  bool writable = false;        ///< changes are wanted: they go to scratch, if `keep_on_disk`
  bool keep_on_disk = true;     ///< false: changes stay in the stage's memory
  std::string scratch_parent;   ///< directory for scratch; made when needed
  std::string scratch_name;     ///< empty: no scratch, and so no extraction
  uid_t uid = 0;                ///< owner of an image's files, inside the user namespace
  gid_t gid = 0;
};

/// A directory on disk that lives as long as the container. Removed with the object unless kept.
class Scratch {
 public:
  Scratch() = default;
  /// Makes parent/name; when that exists (another node on a shared file system) a name with a random ending.
  static Result<Scratch> make(const std::string& parent, const std::string& name);
  Scratch(Scratch&& other) noexcept = default;
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch() { remove(); }

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(parent_); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// From now on the caller removes it.
  UniqueFd keep() { return std::move(parent_); }

 private:
  Scratch(UniqueFd parent, std::string name, std::string path)
      : parent_(std::move(parent)), name_(std::move(name)), path_(std::move(path)) {}
  void remove();
  UniqueFd parent_;
  std::string name_, path_;
};

struct ContainerRoot {
  std::string path;  ///< the mount point, beneath the stage: ENROOT_ROOTFS
  Child server;      ///< squashfuse, or empty
  Scratch scratch;
  std::optional<FileLock> lock;  ///< held while a writable directory is being prepared
};

/// The root is writable as far as hooks and x-create need it; flags nosuid and nodev are set. Its caller makes it read-only.
Result<ContainerRoot> build_root(const RootSource& source, const RootRequest& request, LogSink& log);

}  // namespace situla
