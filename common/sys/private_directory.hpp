// Is a directory that only its user can have written to behind this path?
//
// Its owner is the caller (effective uid), neither group nor others may write (an ACL that lets somebody write shows as
// the group's right), and it is held by descriptor. A symbolic link as the last component is followed when the caller
// or root made it, as people have it who keep their containers on a scratch file system; links of others are refused.
// In a user namespace, where root's look as those of anybody, only those in a directory that is the caller's in the
// same way.
//
// Directories above it are not looked at: project directories that a group may write are common. Who may rename there
// can take the directory away, but not put his own in its place: every opening looks again, and what comes after an
// opening goes through the descriptor (fd(), held()) and never through the path again. Nobody but its user makes names
// in it.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

class PrivateDirectory {
 public:
  /// `setting` is the variable that chose the path ("ENROOT_DATA_PATH"), for the hint; empty: none did.
  /// ErrorKind::not_found when there is none; denied when it is not private: who owns it or which mode it has, and what
  /// to do.
  static Result<PrivateDirectory> open(const std::string& path, std::string_view setting);
  /// Makes it (0700), and the directories above it, when it is missing.
  static Result<PrivateDirectory> open_or_make(const std::string& path, std::string_view setting);
  /// The user's own within a directory that several users may share (a cache, for instance): `path` itself when it is
  /// private to the caller, else <path>/<prefix>-<uid>, made when it is missing. A path that is missing is made.
  static Result<PrivateDirectory> own_within(const std::string& path, std::string_view prefix,
                                             std::string_view setting);
  /// One level below this one. What is there already is checked likewise.
  [[nodiscard]] Result<PrivateDirectory> below(const std::string& name) const;

  /// Open for reading.
  [[nodiscard]] int fd() const { return fd_.get(); }
  UniqueFd take_fd() && { return std::move(fd_); }
  /// As it was asked for: to be shown, not to be opened again.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// The same directory, or a name in it, for calls that take paths only: beneath /proc/self/fd, valid in this process
  /// while the object lives.
  [[nodiscard]] std::string held() const;
  [[nodiscard]] std::string held(std::string_view name) const { return held() + "/" + std::string(name); }

 private:
  PrivateDirectory(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

/// That an open directory belongs to the caller and that nobody else may write in it. `path` and `setting` as above.
Result<void> check_private(int directory_fd, const std::string& path, std::string_view setting);

}  // namespace situla
