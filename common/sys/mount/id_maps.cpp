#include "common/sys/mount/id_maps.hpp"

#include <algorithm>
#include <cerrno>
#include <set>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMostRows = 340;           // UID_GID_MAP_MAX_EXTENTS since Linux 4.15
constexpr size_t kMostMapBytes = 4096 - 1;  // less than a page; some machines have larger ones
constexpr auto kNoGroup = static_cast<gid_t>(-1);
constexpr gid_t kFirstOfUsers = 1000;    // login.defs(5), GID_MIN: below it are the groups of packages
constexpr uint32_t kNobody = 65534;      // what the kernel shows for ids that a namespace lacks
constexpr uint32_t kLastInside = 65535;  // by which a range is recognised: no group of a user's takes its place

std::string map_line(uint64_t inside, uint64_t outside, uint64_t count = 1) {
  return std::to_string(inside) + " " + std::to_string(outside) + " " + std::to_string(count) + "\n";
}

/// Rows of those numbers, each for itself; numbers that follow each other share one.
std::vector<std::string> identity_rows(std::vector<gid_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> rows;
  for (size_t first = 0, end = 0; first < numbers.size(); first = end) {
    end = first + 1;
    while (end < numbers.size() && numbers[end] == numbers[first] + (end - first)) ++end;
    rows.push_back(map_line(numbers[first], numbers[first], end - first));
  }
  return rows;
}

/// Rows that continue each other become one. Not the user's own id with others: newuidmap(1) and newgidmap(1) let him
/// map it by itself, and a range is known by its row.
class Rows {
 public:
  void add(uint64_t inside, uint64_t outside, uint64_t count) {
    if (count == 0) return;
    if (!rows_.empty() && !rows_.back().alone) {
      Row& last = rows_.back();
      if (last.inside + last.count == inside && last.outside + last.count == outside) {
        last.count += count;
        return;
      }
    }
    rows_.push_back({inside, outside, count});
  }
  void add_own(uint64_t inside, uint64_t outside) { rows_.push_back({inside, outside, 1, true}); }
  [[nodiscard]] size_t size() const { return rows_.size(); }
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const Row& row : rows_) text += map_line(row.inside, row.outside, row.count);
    return text;
  }

 private:
  struct Row {
    uint64_t inside, outside, count;
    bool alone = false;
  };
  std::vector<Row> rows_;
};

struct FixedIds {
  uint32_t own = 0;                                       ///< the user's, inside; in `outside` as well
  std::map<uint32_t, std::optional<uint32_t>> outside{};  ///< beside the range, by what they are inside; nullopt: none
};

/// All of the range is there: what has no place in its order comes behind it.
Rows rows_of_range(uint32_t first, const FixedIds& fixed) {
  Rows rows;
  std::vector<uint32_t> displaced;
  uint32_t next = 1;
  for (const auto& [inside, outside] : fixed.outside) {
    if (inside >= 1 && inside <= IdRange::kCount) {
      rows.add(next, first + next - 1, inside - next);
      displaced.push_back(first + inside - 1);
      next = inside + 1;
    } else if (inside > IdRange::kCount && next <= IdRange::kCount) {
      rows.add(next, first + next - 1, IdRange::kCount - next + 1);
      next = IdRange::kCount + 1;
    }
    if (outside && inside == fixed.own)
      rows.add_own(inside, *outside);
    else if (outside)
      rows.add(inside, *outside, 1);
  }
  if (next <= IdRange::kCount) rows.add(next, first + next - 1, IdRange::kCount - next + 1);
  uint32_t spare = IdRange::kCount + 1;
  for (const uint32_t outside : displaced) {
    while (fixed.outside.contains(spare)) ++spare;
    rows.add(spare++, outside, 1);
  }
  return rows;
}

/// Those that stand for themselves beside a range.
std::vector<gid_t> groups_beside(const Identity& user, gid_t inside, uint32_t first) {
  std::vector<gid_t> groups;
  std::set<gid_t> seen = {kNoGroup, inside, user.gid, kNobody, kLastInside};
  for (const gid_t group : user.groups) {
    const bool of_range = group >= first && group - first < IdRange::kCount;
    if (group >= kFirstOfUsers && !of_range && seen.insert(group).second) groups.push_back(group);
  }
  return groups;
}

FixedIds fixed_ids(uint32_t inside, uint32_t outside, Nobody nobody) {
  FixedIds fixed{inside, {{inside, outside}}};
  if (nobody == Nobody::unmapped) fixed.outside.emplace(kNobody, std::nullopt);
  return fixed;
}

GroupMap map_groups_of_range(const Identity& user, gid_t inside, uint32_t first, Nobody nobody) {
  std::vector<gid_t> groups = groups_beside(user, inside, first);
  GroupMap map;
  for (const size_t all = groups.size();; groups.pop_back()) {
    FixedIds fixed = fixed_ids(inside, user.gid, nobody);
    for (const gid_t group : groups) fixed.outside.emplace(group, group);
    const Rows rows = rows_of_range(first, fixed);
    map.text = rows.text();
    map.left_out = all - groups.size();
    if (rows.size() <= kMostRows && map.text.size() <= kMostMapBytes) return map;
    // At once to where it may fit: a user can be in 65,536 groups.
    if (groups.size() > kMostRows) groups.resize(kMostRows);
  }
}

Error map_error(int errnum, const std::string& what) {
  return Error::from_errno(errnum, what).with_code(ErrorCode::namespaces);
}

Result<void> write_proc_file(int directory, const char* name, const std::string& text) {
  UniqueFd file(openat(directory, name, O_WRONLY | O_CLOEXEC));
  if (!file) return fail(map_error(errno, std::string("open /proc/<pid>/") + name));
  // The kernel takes the whole map in one write or nothing.
  if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int errnum = errno;
    std::string shown(trim(text));
    std::replace(shown.begin(), shown.end(), '\n', ',');
    return fail(map_error(errnum, "write \"" + shown + "\" to /proc/<pid>/" + name));
  }
  return {};
}

}  // namespace

GroupMap map_groups(gid_t inside, gid_t outside, const std::vector<gid_t>& supplementary) {
  const bool keeps_own = std::find(supplementary.begin(), supplementary.end(), outside) != supplementary.end();
  std::vector<gid_t> groups;
  std::set<gid_t> seen = {0, kNoGroup, inside, outside};
  for (const gid_t group : supplementary)
    if (keeps_own && seen.insert(group).second) groups.push_back(group);
  GroupMap map;
  for (const size_t all = groups.size();; groups.pop_back()) {
    const std::vector<std::string> rows = identity_rows(groups);
    map.text = map_line(inside, outside) + join(rows, "");
    map.left_out = all - groups.size();
    if (rows.size() < kMostRows && map.text.size() <= kMostMapBytes) return map;
    // At once to where it may fit: a user can be in 65,536 groups.
    if (groups.size() > kMostRows) groups.resize(kMostRows);
  }
}

IdMaps map_range(const Identity& user, bool as_root, const IdRange& range, Nobody nobody) {
  IdMaps maps;
  maps.uids = rows_of_range(range.first_uid, fixed_ids(as_root ? 0 : user.uid, user.uid, nobody)).text();
  maps.groups = map_groups_of_range(user, as_root ? 0 : user.gid, range.first_gid, nobody);
  maps.setgroups = true;
  return maps;
}

Result<void> write_id_maps(int proc_pid_fd, const IdMaps& maps) {
  if (!maps.setgroups) TRY(write_proc_file(proc_pid_fd, "setgroups", "deny"));
  TRY(write_proc_file(proc_pid_fd, "gid_map", maps.groups.text));
  return write_proc_file(proc_pid_fd, "uid_map", maps.uids);
}

Result<void> write_id_maps(int proc_pid_fd, uid_t inside_uid, uid_t outside_uid, const GroupMap& groups) {
  return write_id_maps(proc_pid_fd, {map_line(inside_uid, outside_uid), groups, false});
}

Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid) {
  TRY_ASSIGN(const UniqueFd self, open_file("/proc/self", O_RDONLY | O_DIRECTORY));
  return write_id_maps(self.get(), inside_uid, outside_uid, map_groups(inside_gid, outside_gid));
}

Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid,
                               const std::function<bool()>& map_groups) {
  TRY_ASSIGN(const UniqueFd self, open_file("/proc/self", O_RDONLY | O_DIRECTORY));
  TRY(write_proc_file(self.get(), "setgroups", "deny"));
  if (!map_groups()) TRY(write_proc_file(self.get(), "gid_map", map_line(inside_gid, outside_gid)));
  return write_proc_file(self.get(), "uid_map", map_line(inside_uid, outside_uid));
}

std::vector<NamespaceIds::Row> NamespaceIds::parse(std::string_view map) {
  std::vector<Row> rows;
  for (const std::string_view line : split_nonempty(map, '\n')) {
    const auto words = split_words(line);
    if (words.size() != 3) continue;
    const auto inside = parse_unsigned(words[0]), outside = parse_unsigned(words[1]), count = parse_unsigned(words[2]);
    if (inside && outside && count) rows.push_back({*inside, *outside, *count});
  }
  return rows;
}

std::optional<uint64_t> NamespaceIds::outside_of(const std::vector<Row>& rows, uint64_t inside) {
  for (const Row& row : rows)
    if (inside >= row.inside && inside - row.inside < row.count) return row.outside + (inside - row.inside);
  return std::nullopt;
}

/// The initial namespace has every id, and none of a range's.
std::optional<uint32_t> NamespaceIds::first_of(const std::vector<Row>& rows) {
  const auto last = outside_of(rows, kLastInside);
  if (!last || rows.front().count > kLastInside || *last < kLastInside - 1) return std::nullopt;
  return static_cast<uint32_t>(*last - (kLastInside - 1));
}

uint32_t NamespaceIds::inside_id(const std::vector<Row>& rows, uint32_t image_id, uint32_t first) {
  if (image_id == 0 || image_id > IdRange::kCount) image_id = kNobody;
  const uint64_t outside = uint64_t{first} + image_id - 1;
  for (const Row& row : rows)
    if (outside >= row.outside && outside - row.outside < row.count)
      return static_cast<uint32_t>(row.inside + (outside - row.outside));
  return kNobody;
}

uint32_t NamespaceIds::image_id(const std::vector<Row>& rows, uint64_t id, uint32_t first) {
  const auto outside = outside_of(rows, id);
  return outside && *outside >= first && *outside - first < IdRange::kCount
             ? static_cast<uint32_t>(*outside - first + 1)
             : 0;
}

NamespaceIds::NamespaceIds(std::string_view uid_map, std::string_view gid_map)
    : uids_(parse(uid_map)), gids_(parse(gid_map)) {
  const auto uid = first_of(uids_), gid = first_of(gids_);
  if (uid && gid) range_ = IdRange{*uid, *gid};
}

NamespaceIds NamespaceIds::own() {
  return {read_file("/proc/self/uid_map").value_or(""), read_file("/proc/self/gid_map").value_or("")};
}

std::optional<IdRange> own_id_range() {
  return NamespaceIds::own().range();
}

}  // namespace situla
