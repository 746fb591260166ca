// What does this kernel really let us do? Each probe tries it, in a child process of its own, and leaves nothing
// behind.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"

namespace situla::doctor {

/// Runs the function in a child and brings its error, kind and hint included, or its answer (at most 60 KiB, no '\0')
/// back. For a single-threaded process.
Result<std::string> in_child(const std::function<Result<std::string>()>& function,
                             std::chrono::seconds limit = std::chrono::seconds(10));

/// Who the unprivileged probes run as: the caller, or, for root, a user without any right.
struct Ordinary {
  uid_t uid = 0;
  gid_t gid = 0;
  bool switch_to = false;  ///< the caller is root and has to become this user first
};
Ordinary ordinary_user();

/// Makes a user and a mount namespace and writes the id maps.
Result<void> try_user_namespace(const Ordinary& user);
/// Mounts an overlay with a tmpfs upper layer in a user namespace and writes through it.
Result<void> try_overlay(const Ordinary& user);
/// As root: attaches a squashfs of a few bytes to a loop device and mounts it, in a private mount namespace.
Result<void> try_kernel_mount();
/// The same, with its owner mapped to another user, and looks whether the owner is mapped.
Result<void> try_idmapped_mount();
/// Whether files in the directory can share blocks.
Result<void> try_shared_blocks(const std::string& directory);
/// As root: the compressors ("gzip", "lzo", "xz", "lz4", "zstd") that the kernel's squashfs can read.
Result<std::vector<std::string>> squashfs_compressors();

}  // namespace situla::doctor
