#include "hooks/inject/hook.hpp"

#include <optional>

#include <grp.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/users.hpp"

namespace situla {

namespace {

constexpr size_t kMostGroupEntry = size_t{16} << 20U;

/// nullopt: no such group.
Result<std::optional<std::string>> group_name(gid_t gid) {
  std::vector<char> buffer(size_t{64} << 10U);
  group entry{};
  group* found = nullptr;
  int errnum = 0;
  // An entry has all its members' names.
  while ((errnum = getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kMostGroupEntry)
    buffer.resize(buffer.size() * 4);
  if (Error error = Error::from_errno(errnum, "look up group " + std::to_string(gid)); error.inconclusive())
    return fail(std::move(error));
  if (errnum != 0 || found == nullptr) return std::optional<std::string>();
  return std::optional<std::string>(entry.gr_name);
}

}  // namespace

Result<UserEntry> look_up_user(uid_t uid, gid_t gid, const Environment& environment) {
  UserEntry user;
  user.uid = uid;
  user.gid = gid;
  TRY_ASSIGN(const auto known, find_user(uid));
  user.name = known ? known->name : environment.get_or("USER", "user" + std::to_string(uid));
  user.home = known ? known->home : environment.get_or("HOME", "/");
  if (known) user.gecos = known->gecos;
  if (known) user.shell = known->shell;
  TRY_ASSIGN(const auto own, group_name(gid));
  user.group = own.value_or("group" + std::to_string(gid));
  return user;
}

std::vector<GroupEntry> look_up_groups() {
  constexpr size_t kMostGroups = 64;
  std::vector<GroupEntry> groups;
  size_t asked = 0;
  for (const gid_t other : supplementary_groups()) {
    if (other == getegid()) continue;
    if (++asked > kMostGroups) break;
    // A name is of use, and none is no harm.
    auto name = group_name(other);
    if (name && *name) groups.push_back({std::move(**name), other});
  }
  return groups;
}

}  // namespace situla
