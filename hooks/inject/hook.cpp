#include "hooks/inject/hook.hpp"

#include <grp.h>
#include <pwd.h>

namespace situla {
namespace {

constexpr size_t kDatabaseBuffer = size_t{64} << 10U;

}  // namespace

UserEntry look_up_user(uid_t uid, gid_t gid, const Environment& environment) {
  UserEntry user;
  user.uid = uid;
  user.gid = gid;
  std::vector<char> buffer(kDatabaseBuffer);
  passwd account{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &account, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    user.name = account.pw_name;
    user.gecos = account.pw_gecos;
    user.home = account.pw_dir;
    user.shell = account.pw_shell;
  } else {
    user.name = environment.get_or("USER", "user" + std::to_string(uid));
    user.home = environment.get_or("HOME", "/");
  }
  group entry{};
  group* found_group = nullptr;
  if (getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found_group) == 0 && found_group != nullptr)
    user.group = entry.gr_name;
  else
    user.group = "group" + std::to_string(gid);
  return user;
}

}  // namespace situla
