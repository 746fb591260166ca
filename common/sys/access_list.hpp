// Who else may read a file of ours? POSIX access lists: acl(5).
#pragma once

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

/// An open file's list from now on: its owner and this user may read it, nobody else anything; nobody but the owner may
/// change that. stat(2) shows the list's mask as the group's right (0440). ErrorKind::unsupported: its file system has
/// no such lists.
Result<void> let_user_read(int fd, uid_t user);

}  // namespace situla
