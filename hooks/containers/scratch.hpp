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

/// Of which kind the directory is in which scratch is made.
enum class ScratchPlaceKind {
  data,       ///< ENROOT_DATA_PATH: private to the user
  temporary,  ///< ENROOT_TEMP_PATH: may be everybody's
};

/// Removed with the object unless kept.
class Scratch {
 public:
  Scratch() = default;
  /// Makes parent/name; when that exists (another node on a shared file system) a name with a random ending.
  /// Whoever made it, its user is the only one who may write there (PrivateDirectory).
  static Result<Scratch> make(ScratchPlaceKind kind, const std::string& parent, const std::string& name,
                              const ScratchNotice& notice = {});
  Scratch(Scratch&& other) noexcept = default;
  Scratch& operator=(Scratch&& other) noexcept;
  ~Scratch() { remove(); }

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(parent_); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& path() const { return path_; }  ///< to be shown, or given to a cleaner
  [[nodiscard]] std::string held() const;                          ///< to be opened, before pivot_root

  /// Starts a child that removes the directory when this process, whatever program it has become, has ended in whatever
  /// way. Needed where the container's root is a bind mount of the directory: in a mount namespace that has mounts on
  /// directories of the tree these cannot be removed (EBUSY). So it is to be called before they are made: the child
  /// keeps a namespace without.
  Result<void> remove_at_exit();
  /// From now on the caller removes it (or the child does, after remove_at_exit()).
  UniqueFd keep() {
    directory_.reset();
    return std::move(parent_);
  }

 private:
  Scratch(UniqueFd parent, UniqueFd directory, std::string name, std::string path)
      : parent_(std::move(parent)), directory_(std::move(directory)), name_(std::move(name)), path_(std::move(path)) {}
  void remove();
  UniqueFd parent_, directory_;
  std::string name_, path_;
  bool at_exit_ = false;
};

}  // namespace situla
