#include "hooks/run/subordinate_groups.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/users.hpp"

namespace situla {
namespace {

constexpr const char* kSubgid = "/etc/subgid";
constexpr size_t kMostSubgid = size_t{16} << 20U;
constexpr size_t kMostGroups = 339;  // of the kernel's 340 rows; the user's own has one

struct Range {
  std::string_view user;
  uint64_t first, count;

  [[nodiscard]] bool has(gid_t group) const { return group >= first && group - first < count; }
};

std::vector<Range> ranges(std::string_view subgid) {
  std::vector<Range> found;
  for (const std::string_view line : split_nonempty(subgid, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() != 3) continue;
    const auto first = parse_unsigned(fields[1]), count = parse_unsigned(fields[2]);
    if (first && count) found.push_back({fields[0], *first, *count});
  }
  return found;
}

std::vector<gid_t> in_any(const std::vector<Range>& ranges, const std::vector<gid_t>& groups) {
  std::vector<gid_t> found;
  for (const gid_t group : groups)
    if (std::any_of(ranges.begin(), ranges.end(), [group](const Range& range) { return range.has(group); }))
      found.push_back(group);
  return found;
}

std::string rows_of(gid_t inside, gid_t gid, const std::vector<gid_t>& groups) {
  std::string rows = std::to_string(inside) + " " + std::to_string(gid) + " 1\n";
  for (const gid_t group : groups) rows += std::to_string(group) + " " + std::to_string(group) + " 1\n";
  return rows;
}

}  // namespace

std::vector<gid_t> allowed_groups(std::string_view subgid, uid_t uid, std::string_view name,
                                  const std::vector<gid_t>& groups) {
  const std::string number = std::to_string(uid);
  std::vector<Range> own = ranges(subgid);
  std::erase_if(own,
                [&](const Range& range) { return range.user.empty() || (range.user != name && range.user != number); });
  return in_any(own, groups);
}

std::vector<gid_t> groups_to_map(gid_t inside, uid_t uid, gid_t gid) {
  std::vector<gid_t> groups = supplementary_groups();
  if (std::erase(groups, gid) == 0) return {};
  std::erase_if(groups, [inside](gid_t group) { return group == 0 || group == inside; });
  if (groups.empty()) return {};
  const auto subgid = read_file(kSubgid, kMostSubgid);
  // The directory service is asked for the user's name only where it matters.
  if (!subgid || in_any(ranges(*subgid), groups).empty()) return {};
  const auto user = find_user(uid);
  groups = allowed_groups(*subgid, uid, user && *user ? (*user)->name : "", groups);
  if (groups.size() > kMostGroups) groups.resize(kMostGroups);
  return groups;
}

std::optional<SubordinateGroups> SubordinateGroups::begin(gid_t inside, gid_t gid, const std::vector<gid_t>& groups,
                                                          LogSink& log) {
  if (groups.empty()) return std::nullopt;
  auto helper = MapHelper::begin("newgidmap", rows_of(inside, gid, groups));
  if (!helper) {
    log.detail("only your own group is seen in the container: " + helper.error().message());
    return std::nullopt;
  }
  return SubordinateGroups(std::move(*helper));
}

bool SubordinateGroups::map(LogSink& log) {
  const auto mapped = helper_.map();
  if (!mapped) log.warning("only your own group is seen in the container: " + mapped.error().text());
  return mapped.has_value();
}

}  // namespace situla
