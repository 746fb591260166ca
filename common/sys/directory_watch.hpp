// Which files have just been written in a directory?
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Of one directory, by inotify(7): a name is told when who had it open for writing has closed it, or has moved it
/// there.
class DirectoryWatch {
 public:
  static Result<DirectoryWatch> open(int directory_fd);
  [[nodiscard]] int fd() const { return fd_.get(); }  ///< readable when there are names
  /// Those since the last call, without waiting. When some were lost (IN_Q_OVERFLOW) that is all: the caller lists.
  struct Written {
    std::vector<std::string> names;
    bool lost = false;
  };
  [[nodiscard]] Result<Written> read() const;

 private:
  explicit DirectoryWatch(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace situla
