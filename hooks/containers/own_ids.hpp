// Which ids are the calling user's, besides the one that he has?
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/mount/subordinate_ids.hpp"

namespace situla {

/// The calling user's range by a rule. For a process in no user namespace of its own: there nobody can tell that the
/// files are root's.
Result<IdRange> find_own_range(const IdRangeRule& rule);

/// What situla.toml says; one that is wrong says nothing.
IdRangeRule site_range_rule();

/// The calling user's range, if `owner` is somebody that he has been with it as root of a container: that of this
/// process's user namespace, or, where that has none, by the site's rule.
std::optional<IdRange> own_range_with(uid_t owner);

/// Whether all directories of a tree, as far as they can be looked into, are the caller's, who needs no range to remove
/// it then, whosever its files are. Of root on the machine all are.
bool owns_directories(int parent_fd, const std::string& name);

}  // namespace situla
