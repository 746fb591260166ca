// Which ids does a user namespace have, and which are they outside? The texts of uid_map and gid_map
// (user_namespaces(7)), and what this process's own say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/identity.hpp"

namespace situla {

/// Ids that a user has beside his own, as many uids as gids (subuid(5), subgid(5)): in a namespace they are 1 to
/// 65535, and 0 is he himself.
struct IdRange {
  static constexpr uint32_t kCount = 65535;
  uint32_t first_uid = 0, first_gid = 0;
  friend bool operator==(const IdRange&, const IdRange&) = default;
};

/// The text of a gid_map: rows "inside outside count".
struct GroupMap {
  std::string text;
  size_t left_out = 0;  ///< groups for which the kernel has no room: 340 rows, and less than 4096 bytes
};
/// `inside` stands for `outside`, the user's own group, and each of his `supplementary` groups for itself, the first
/// ones first where they are too many. Not group 0, and none that has the number `inside`: that is taken. None at all
/// where `outside` is not one of them: with CAP_SETGID in his namespace he can take any group of the map in place of
/// his own, would leave his own like that, and files that it may not read (mode 0604) would be his.
GroupMap map_groups(gid_t inside, gid_t outside, const std::vector<gid_t>& supplementary = {});

struct IdMaps {
  std::string uids;
  GroupMap groups;
  bool setgroups = false;  ///< processes in the namespace may call setgroups(2)
};
/// Of a user with a range. He himself is root, or has his own number. Each of his groups from 1000 on stands for itself
/// (the numbers below are those of the image's packages), and those that have no place among 1 to 65535 because of that
/// follow from 65536 on: so every such map has all ids of the range, and who is root in one of them can read and remove
/// what was written in another. setgroups(2) works: su(1), sshd(8) and every daemon that becomes another user call it.
/// nobody: what 65534 is. For a helper, who looks at files of anybody, only what the kernel shows for ids that the
/// namespace lacks; the range's own has a number behind the range then.
enum class Nobody { of_range, unmapped };
IdMaps map_range(const Identity& user, bool as_root, const IdRange& range, Nobody nobody = Nobody::of_range);

/// Writes the maps for a process, through its /proc directory descriptor. More than one id needs CAP_SETUID and
/// CAP_SETGID in the parent's user namespace.
Result<void> write_id_maps(int proc_pid_fd, const IdMaps& maps);
/// The map of one uid, that of the groups, and setgroups=deny.
Result<void> write_id_maps(int proc_pid_fd, uid_t inside_uid, uid_t outside_uid, const GroupMap& groups);
/// The same with a single group for the calling process itself, which has just unshared its user namespace.
Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid);
/// The same, but `map_groups` has the map of the groups written by somebody who may (newgidmap(1)), and says whether it
/// was. When it is asked setgroups(2) is denied already.
Result<void> write_own_id_maps(uid_t inside_uid, uid_t outside_uid, gid_t inside_gid, gid_t outside_gid,
                               const std::function<bool()>& map_groups);

/// The owners of files as this process's user namespace shows them, and as an image calls them.
class NamespaceIds {
 public:
  /// From /proc/self: the caller is in a namespace of its own.
  static NamespaceIds own();
  /// From the texts of both maps.
  NamespaceIds(std::string_view uid_map, std::string_view gid_map);

  /// nullopt: it has none.
  [[nodiscard]] const std::optional<IdRange>& range() const { return range_; }
  /// 0 for the user himself, 1 to 65535 for the range. 0 also for whom an image cannot name: groups that the user has
  /// on this machine, ids that a helper's namespace lacks (Nobody::unmapped), and everybody where there is no range.
  [[nodiscard]] uint32_t image_uid(uid_t uid) const { return range_ ? image_id(uids_, uid, range_->first_uid) : 0; }
  [[nodiscard]] uint32_t image_gid(gid_t gid) const { return range_ ? image_id(gids_, gid, range_->first_gid) : 0; }
  /// The other way: 1 to 65535, as this namespace has them. The range's nobody for any other.
  [[nodiscard]] uint32_t inside_uid(uint32_t id) const { return inside_id(uids_, id, range_ ? range_->first_uid : 0); }
  [[nodiscard]] uint32_t inside_gid(uint32_t id) const { return inside_id(gids_, id, range_ ? range_->first_gid : 0); }

 private:
  struct Row {
    uint64_t inside = 0, outside = 0, count = 0;
  };
  static std::vector<Row> parse(std::string_view map);
  static std::optional<uint64_t> outside_of(const std::vector<Row>& rows, uint64_t inside);
  static std::optional<uint32_t> first_of(const std::vector<Row>& rows);
  static uint32_t inside_id(const std::vector<Row>& rows, uint32_t image_id, uint32_t first);
  static uint32_t image_id(const std::vector<Row>& rows, uint64_t id, uint32_t first);

  std::vector<Row> uids_, gids_;
  std::optional<IdRange> range_;
};
/// The range of this process's user namespace, which has to be one of its own.
std::optional<IdRange> own_id_range();

}  // namespace situla
