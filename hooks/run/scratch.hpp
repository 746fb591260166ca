// Where on disk does a container keep what only it needs, and who removes it? A directory named after the step, owned
// by this object.
#pragma once

#include <functional>
#include <string>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Called with a directory's path before it is made, so that whoever watches this process can remove it if it is
/// killed; once more when it had to take another name.
using ScratchNotice = std::function<void(const std::string& path)>;

/// Removed with the object unless kept.
class Scratch {
 public:
  Scratch() = default;
  /// Makes parent/name; when that exists (another node on a shared file system) a name with a random ending.
  static Result<Scratch> make(const std::string& parent, const std::string& name, const ScratchNotice& notice = {});
  Scratch(Scratch&& other) noexcept = default;
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch() { remove(); }

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(parent_); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Starts a child that removes the directory when this process, whatever program it has become, has ended in whatever
  /// way. Needed where the container's root is a bind mount of the directory: in a mount namespace that has mounts on
  /// directories of the tree these cannot be removed (EBUSY). So it is to be called before they are made: the child
  /// keeps a namespace without.
  Result<void> remove_at_exit();
  /// From now on the caller removes it (or the child does, after remove_at_exit()).
  UniqueFd keep() { return std::move(parent_); }

 private:
  Scratch(UniqueFd parent, std::string name, std::string path)
      : parent_(std::move(parent)), name_(std::move(name)), path_(std::move(path)) {}
  void remove();
  UniqueFd parent_;
  std::string name_, path_;
  bool at_exit_ = false;
};

}  // namespace situla
