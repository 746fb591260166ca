// Which of his groups does a user have in a container that no root has made? Those that subgid(5) lets him map.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/containers/user_range.hpp"

namespace situla {

/// Those of `groups` that a line "user:first:count" of subgid(5) has for the user, by his name or number.
std::vector<gid_t> allowed_groups(std::string_view subgid, uid_t uid, std::string_view name,
                                  const std::vector<gid_t>& groups);

/// Of the calling user's supplementary groups those that he may map, without his own. As in map_groups(), none where
/// his own is not among them.
std::vector<gid_t> groups_to_map(gid_t inside, uid_t uid, gid_t gid);

/// newgidmap(1), waiting in the user's own namespace for the process that leaves it.
class SubordinateGroups {
 public:
  /// groups: groups_to_map(). The caller is in no user namespace of its own yet, and has a single thread. nullopt:
  /// there is nothing to map.
  static std::optional<SubordinateGroups> begin(gid_t inside, gid_t gid, const std::vector<gid_t>& groups,
                                                LogSink& log);
  /// The caller has unshared its user namespace. Once. False: nothing is written, a single group can be.
  bool map(LogSink& log);

 private:
  explicit SubordinateGroups(MapHelper helper) : helper_(std::move(helper)) {}
  MapHelper helper_;
};

}  // namespace situla
