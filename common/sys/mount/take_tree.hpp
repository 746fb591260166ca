// How does root remove a directory whose user may go on making names in it?
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

/// It and each directory in it becomes the caller's (root's), with mode 0700, before it is emptied: so it can be. Only
/// those whose owner `is_his` accepts, and on the mount of directory_fd; an error says what stays, or that there was no
/// time for more. What was taken stays the caller's, and a later call goes on with it.
Result<void> take_and_remove(int directory_fd, const std::string& name, const std::function<bool(uid_t)>& is_his,
                             std::chrono::steady_clock::time_point end);

}  // namespace situla
