// Which ids does a user have beside his own? Those that /etc/subuid and /etc/subgid give him (subuid(5), subgid(5)), or
// a rule of the site's that gives each user a range of his own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/id_maps.hpp"

namespace situla {

/// 65,536 ids, of which 65,535 are used, for each of `users` users from `first_uid` on: those of first_uid begin at
/// `first`, those of the next one follow. The same numbers are uids and gids.
struct IdArea {
  static constexpr uint64_t kEach = 65536;
  static constexpr uint64_t kLastId = 0xfffffffe;  ///< (uid_t)-1 is none
  uint64_t first = 0, first_uid = 0, users = 0;

  [[nodiscard]] bool has(uint64_t id) const { return id >= first && id - first < users * kEach; }
  /// Why it cannot be, or "".
  [[nodiscard]] std::string problem() const;
  /// nullopt: of another user.
  [[nodiscard]] std::optional<IdRange> range_of(uid_t uid) const;
  friend bool operator==(const IdArea&, const IdArea&) = default;
};

/// When /etc/subuid and /etc/subgid count. automatic: where newuidmap(1) and newgidmap(1) are installed with their
/// privileges: they map the same ids for him.
enum class SubordinateFiles { automatic, always, never };

/// What the site says of ranges.
struct IdRangeRule {
  SubordinateFiles files = SubordinateFiles::automatic;  ///< before the area
  IdArea area;                                           ///< users == 0: none

  /// Nobody has a range.
  [[nodiscard]] bool off() const { return files == SubordinateFiles::never && area.users == 0; }
  friend bool operator==(const IdRangeRule&, const IdRangeRule&) = default;
};

/// Where the node says who is who, and its programs that give out ids. Files of root's.
struct IdFiles {
  std::string subuid = "/etc/subuid", subgid = "/etc/subgid", passwd = "/etc/passwd", group = "/etc/group";
  std::string nsswitch = "/etc/nsswitch.conf";
  std::string newuidmap = "/usr/bin/newuidmap", newgidmap = "/usr/bin/newgidmap";
};

/// The first id of the first line "USER:FIRST:COUNT" for the user, by his name or number, that has enough of them.
/// Lines that are not exactly like that are nobody's.
std::optional<uint32_t> find_subordinate(std::string_view text, uid_t uid, std::string_view name);

/// A user's range, or an error that says why he has none (ErrorKind::not_found: nobody gives him one;
/// ErrorKind::denied: what gives it is not right). An ordinary user's only, whose own group is one of his supplementary
/// ones, as map_groups() has it. No id or group of his own lies in it, no account, no group and no other's line that
/// the node's files know; what only a directory service knows is not looked for. The files count for nobody where
/// nsswitch.conf(5) has another first source of `subid`.
Result<IdRange> find_id_range(const Identity& user, const IdRangeRule& rule, const IdFiles& files = {});

}  // namespace situla
