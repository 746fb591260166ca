#include "common/sys/users.hpp"

#include <algorithm>
#include <cerrno>

#include <grp.h>
#include <pwd.h>

namespace situla {
namespace {

Result<std::vector<gid_t>> groups_of(const std::string& name, gid_t gid) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  // The count of groups may grow between the calls; every call says how many there are.
  while (getgrouplist(name.c_str(), gid, groups.data(), &count) < 0) {
    if (count > 65536) return fail(ErrorKind::failure, "look up groups of " + name + ": more than 65536");
    count = std::max(count, static_cast<int>(groups.size()) * 2);
    groups.resize(static_cast<size_t>(count));
  }
  groups.resize(static_cast<size_t>(count));
  return groups;
}

/// look_up: getpwnam_r(3) or getpwuid_r(3), bound to who is meant; `who` is for messages.
template <typename LookUp>
Result<UserRecord> look_up_user(const std::string& who, LookUp look_up) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  int errnum = 0;
  while ((errnum = look_up(&entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < (size_t{1} << 24U))
    buffer.resize(buffer.size() * 2);
  if (errnum != 0) return fail_errno(errnum, "look up user " + who);
  if (found == nullptr)
    return fail(Error(ErrorKind::not_found, "look up user " + who + ": no such user")
                    .with_code(ErrorCode::installation)
                    .with_hint("check `getent passwd " + who + "` on this node"));
  const auto text = [](const char* field) { return std::string(field == nullptr ? "" : field); };
  return UserRecord{text(entry.pw_name),  text(entry.pw_gecos), text(entry.pw_dir),
                    text(entry.pw_shell), entry.pw_uid,         entry.pw_gid};
}

Result<UserRecord> user_of(uid_t uid) {
  return look_up_user(std::to_string(uid), [&](passwd* entry, char* buffer, size_t size, passwd** result) {
    return getpwuid_r(uid, entry, buffer, size, result);
  });
}

Result<Account> with_groups(UserRecord user) {
  TRY_ASSIGN(std::vector<gid_t> groups, groups_of(user.name, user.gid));
  return Account{{user.uid, user.gid, std::move(groups)}, std::move(user.home)};
}

}  // namespace

Result<Identity> identity_of_user(const std::string& name) {
  TRY_ASSIGN(UserRecord user, look_up_user(name, [&](passwd* entry, char* buffer, size_t size, passwd** result) {
               return getpwnam_r(name.c_str(), entry, buffer, size, result);
             }));
  TRY_ASSIGN(Account account, with_groups(std::move(user)));
  return std::move(account.identity);
}

Result<std::optional<UserRecord>> find_user(uid_t uid) {
  auto user = user_of(uid);
  if (user) return std::optional<UserRecord>(std::move(*user));
  if (user.error().inconclusive()) return fail(std::move(user).error());
  return std::optional<UserRecord>();
}

Result<Account> account_of(uid_t uid) {
  TRY_ASSIGN(UserRecord user, user_of(uid));
  return with_groups(std::move(user));
}

}  // namespace situla
