// Who is this process, on which node, and how does it become somebody else for good?
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla {

struct Identity {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  ///< supplementary groups
};

/// setgroups, setresgid, setresuid, then verifies that nothing of the old identity is left and that it cannot come
/// back; capabilities are gone when uid != 0. For a single-threaded process. Afterwards the process is the user for
/// good.
Result<void> become(const Identity& identity);
/// The same for an ordinary user who keeps one capability, over execve(2), too (capabilities(7)). What this user's
/// other processes may do with such a process is to signal it: they cannot trace it, or look into its /proc directory.
Result<void> become_keeping(const Identity& identity, int capability);
constexpr int kReadAnyFile = 2;  ///< CAP_DAC_READ_SEARCH
/// Of what become_keeping() kept nothing is in effect in this process; a program that it executes still gets it.
Result<void> leave_capabilities_to_programs();
/// Empties the capability sets and the bounding set, sets no_new_privs.
Result<void> drop_all_capabilities();
Result<void> set_no_new_privileges();
/// Drops everything from the bounding set (the current sets stay).
Result<void> drop_bounding_set();
/// Raises every permitted capability in the ambient set (capabilities(7)): without it an ordinary user's program has
/// none after execve(2), also in a user namespace where its parent had all of them. Children inherit it.
Result<void> keep_capabilities_over_exec();
/// Lets a process that changed its uid without executing a program write its own /proc files (id maps) again
/// (PR_SET_DUMPABLE). Only where nothing in its memory came from the identity before.
Result<void> own_proc_files_again();
/// The name of the node (gethostname(2)).
std::string host_name();
/// The supplementary groups of this process, ascending, as far as its user namespace has them.
std::vector<gid_t> supplementary_groups();
/// Has this process's user namespace that uid? Files of others belong to the overflow uid, 65534.
bool is_mapped_uid(uid_t uid);
/// Is this the machine's own user namespace, which has all uids?
bool in_initial_user_namespace();
/// is_mapped_uid() in a user namespace that is not the machine's own.
bool is_neighbour(uid_t uid);

/// While it lives this thread reaches files as another user of its namespace (setfsuid(2)), or as before if it may not:
/// whoever owns a file needs no capability for it.
class FileUser {
 public:
  explicit FileUser(uid_t uid);
  FileUser(const FileUser&) = delete;
  FileUser& operator=(const FileUser&) = delete;
  ~FileUser();

 private:
  int dumpable_, parent_signal_ = 0;
  uid_t before_;
};

}  // namespace situla
