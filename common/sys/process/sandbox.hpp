// How does a process that reads foreign bytes give up everything that reading them does not need?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

struct SandboxRules {
  std::vector<std::string> readable;  ///< files and directories, for Landlock; what is missing is left out
  uint64_t largest_file = 0;          ///< bytes that a file may grow to (RLIMIT_FSIZE, writes then fail); 0: any
};

/// For good, for this process and its threads to come; it must have no other threads yet.
///
/// Afterwards it can read files, compute, make threads, speak TCP and UDP, and use the descriptors that it has or is
/// sent: no more. It starts no program or process, opens nothing for writing, changes no name, mode or owner, reaches
/// no other process by signal, ptrace or unix socket, and makes no namespace, mount, ring or kernel program (seccomp:
/// calls that did not exist when this was written do not exist for it). Where the kernel has Landlock it reads nothing
/// but `readable`. No core dump, not traceable, no_new_privs, few descriptors.
///
/// True: with Landlock. An error when seccomp is not to be had.
Result<bool> enter_sandbox(const SandboxRules& rules);

/// What an importer reads: the C library's, OpenSSL's and libcurl's configuration, names and certificates.
std::vector<std::string> readable_for_network();

}  // namespace situla
