// How does a step's user get to read what the broker knows of it? RootOperation::keep_record.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/file.hpp"

namespace situla {

/// One file of root's in `directory`/UID, which this user may read. It is locked for as long as this object lives: by
/// that a reader knows that more will come.
class RecordFile {
 public:
  static constexpr size_t kMostOfUser = 64;   ///< files, after each writing; those written longest ago go
  static constexpr int64_t kLongest = 86400;  ///< seconds since it was written

  /// `name`: of digits, letters and points.
  RecordFile(std::string directory, uid_t user, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)), user_(user) {}

  /// The whole file anew, in one moment. ErrorKind::unsupported: no user can be let read it there, and nothing is
  /// written.
  Result<void> write(std::string_view bytes);
  [[nodiscard]] bool written() const { return file_.has_value(); }

 private:
  std::string directory_, name_;
  uid_t user_;
  std::optional<FileLock> file_;
};

/// Of all users: what is older than kLongest, and that nobody writes any more.
void remove_old_records(const std::string& directory);

}  // namespace situla
