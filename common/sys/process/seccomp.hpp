// Why can apt and ssh run with one mapped uid? Because chown and set*id report success without doing anything.
// COMPAT.md 2.4.
// Not needed where a container has a range of ids (common/sys/mount/id_maps.hpp).
#pragma once

#include "common/base/result.hpp"

namespace situla {

/// Installs the filter of COMPAT.md 2 item 4 for the calling thread (hand-written BPF: the plugin links no libseccomp):
/// chown lchown fchown fchownat set*uid set*gid setgroups return 0; setfsuid/setfsgid(-1) are let through, and so is,
/// for a process in several groups of its user namespace, what gives a file to one of them and to no other user
/// (chgrp(1)): of 64-bit programs. x86_64 (with the i386 and x32 calls), aarch64 and ppc64le. Sets no_new_privs only
/// when the caller lacks CAP_SYS_ADMIN in its user namespace.
Result<void> install_id_filter();

}  // namespace situla
