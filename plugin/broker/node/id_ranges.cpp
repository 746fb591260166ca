#include "plugin/broker/node/id_ranges.hpp"

#include <string>

#include <syslog.h>

namespace situla {

std::optional<IdRange> range_of(const Identity& user, const IdRangeRule& rule) {
  auto range = find_id_range(user, rule);
  if (range) return *range;
  if (range.error().kind() != ErrorKind::not_found)
    syslog(LOG_WARNING, "no range of ids for uid %u: %s", user.uid, range.error().message().c_str());
  return std::nullopt;
}

IdMaps container_maps(const Identity& user, bool remap_root, const std::optional<IdRange>& range) {
  if (range) return map_range(user, remap_root, *range);
  const uid_t uid = remap_root ? 0 : user.uid;
  return {std::to_string(uid) + " " + std::to_string(user.uid) + " 1\n",
          map_groups(remap_root ? 0 : user.gid, user.gid, user.groups)};
}

std::optional<IdMaps> helper_maps(const Identity& user, const IdRangeRule& rule) {
  const auto range = range_of(user, rule);
  return range ? std::optional(map_range(user, false, *range, Nobody::unmapped)) : std::nullopt;
}

}  // namespace situla
