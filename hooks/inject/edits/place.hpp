// How does something come to a place beneath the root, and to no other? The place is made where it lacks, opened once,
// mounted on by descriptor, and afterwards found again by its path: if somebody renamed meanwhile, it is taken away.
#pragma once

#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/mount_api.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/host_file.hpp"

namespace situla {

class Place {
 public:
  Place(const RootDir& root, std::string path) : root_(root), path_(std::move(path)) {}

  /// The file, with these flags. Nothing to do where the same file, or a usable node of the same device, is already.
  Result<void> bind(const HostFile& file, bool recursive, const MountFlags& flags) const;
  /// A new memory file system; its root, open.
  Result<UniqueFd> cover(mode_t mode, const MountFlags& flags) const;

 private:
  [[nodiscard]] Result<UniqueFd> make(bool directory) const;
  [[nodiscard]] Result<void> check_way() const;
  [[nodiscard]] Result<void> verify(const UniqueFd& mounted) const;

  const RootDir& root_;
  std::string path_;
};

}  // namespace situla
