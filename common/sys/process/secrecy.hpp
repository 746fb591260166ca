// How does a process that knows passwords keep its memory to itself?
#pragma once

#include <sys/resource.h>

namespace situla {

/// While it lives the process leaves no core dump, not even through a pipe to a collector (core(5): a pipe does not
/// care about RLIMIT_CORE, but a process that is not dumpable gives none), and no other process of the same user can
/// read its memory or environment or trace it: the service user has importers of many users. Processes started from
/// here leave no core file either. Nests. Not while user namespaces are made: the kernel gives the /proc/self of such a
/// process to root.
class KeepSecrets {
 public:
  KeepSecrets();
  KeepSecrets(const KeepSecrets&) = delete;
  KeepSecrets& operator=(const KeepSecrets&) = delete;
  ~KeepSecrets();

 private:
  int dumpable_;
  rlimit core_{};
};

}  // namespace situla
