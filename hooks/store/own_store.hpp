// Where does a user keep imported images on a node that has no image store?
#pragma once

#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/result.hpp"
#include "common/sys/private_directory.hpp"
#include "hooks/config/enroot_config.hpp"

namespace situla {

/// `<ENROOT_CACHE_PATH>/situla-store.<uid>`: laid out, limited and swept as a node's (ImageStore), and the user's
/// alone. Held by descriptor, because the cache may be a directory that users share.
class OwnStore {
 public:
  /// Of the caller; made (0700) when it is missing. ErrorKind::denied, with what to do, when it belongs to somebody
  /// else or others can write to it.
  static Result<OwnStore> open(const EnrootConfig& config);
  /// The same, but what is missing is not made: ErrorKind::not_found.
  static Result<OwnStore> find(const EnrootConfig& config);

  [[nodiscard]] int fd() const { return directory_.fd(); }
  /// For ImageStore::open(): valid in this process and its forks while the object lives.
  [[nodiscard]] std::string path() const { return directory_.held(); }
  /// The error with the directory's own path in the place of that one.
  [[nodiscard]] Error shown(const Error& error) const;

 private:
  explicit OwnStore(PrivateDirectory directory) : directory_(std::move(directory)) {}
  [[nodiscard]] std::string shown(std::string_view text) const;

  PrivateDirectory directory_;
};

}  // namespace situla
