// Which of his groups does a user have in a container that no root has made? Those that subgid(5) lets him map.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/process/process.hpp"

namespace situla {

/// Those of `groups` that a line "user:first:count" of subgid(5) has for the user, by his name or number.
std::vector<gid_t> allowed_groups(std::string_view subgid, uid_t uid, std::string_view name,
                                  const std::vector<gid_t>& groups);

/// newgidmap(1), waiting in the user's own namespace for the process that leaves it. As in map_groups(), none but his
/// own where that is not among his supplementary ones.
class SubordinateGroups {
 public:
  /// The caller is in no user namespace of its own yet, and has a single thread. nullopt: there is nothing to map.
  static std::optional<SubordinateGroups> begin(gid_t inside, uid_t uid, gid_t gid, LogSink& log);
  /// The caller has unshared its user namespace. Once. False: nothing is written, a single group can be.
  bool map(LogSink& log);

 private:
  SubordinateGroups(Child child, UniqueFd go) : child_(std::move(child)), go_(std::move(go)) {}
  Child child_;
  UniqueFd go_;
};

}  // namespace situla
