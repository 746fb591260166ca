#include "hooks/inject/hook.hpp"

#include <grp.h>

#include "common/sys/users.hpp"

namespace situla {

Result<UserEntry> look_up_user(uid_t uid, gid_t gid, const Environment& environment) {
  UserEntry user;
  user.uid = uid;
  user.gid = gid;
  TRY_ASSIGN(const auto known, find_user(uid));
  user.name = known ? known->name : environment.get_or("USER", "user" + std::to_string(uid));
  user.home = known ? known->home : environment.get_or("HOME", "/");
  if (known) user.gecos = known->gecos;
  if (known) user.shell = known->shell;
  std::vector<char> buffer(size_t{64} << 10U);
  group entry{};
  group* found = nullptr;
  const int errnum = getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found);
  if (Error error = Error::from_errno(errnum, "look up group " + std::to_string(gid)); error.inconclusive())
    return fail(std::move(error));
  user.group = errnum == 0 && found != nullptr ? entry.gr_name : "group" + std::to_string(gid);
  return user;
}

}  // namespace situla
