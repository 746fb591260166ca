// Who are the users of this node? From wherever it has them (nsswitch.conf), so not for static programs.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/sys/identity.hpp"

namespace situla {

/// From getpwnam(3)/getgrouplist(3). ErrorKind::not_found with a hint.
Result<Identity> identity_of_user(const std::string& name);
/// A line of passwd(5).
struct UserRecord {
  std::string name, gecos, home, shell;
  uid_t uid = 0;
  gid_t gid = 0;
};
/// getpwuid(3); nullopt when nobody has that uid, or the node's directory service does not answer. An error when this
/// machine could not look (Error::inconclusive()).
Result<std::optional<UserRecord>> find_user(uid_t uid);
struct Account {
  Identity identity;
  std::string home;
};
/// From getpwuid(3)/getgrouplist(3). ErrorKind::not_found.
Result<Account> account_of(uid_t uid);

}  // namespace situla
