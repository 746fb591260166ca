#include "common/sys/process/secrecy.hpp"

#include <sys/prctl.h>

namespace situla {

KeepSecrets::KeepSecrets() : dumpable_(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)) {
  (void)getrlimit(RLIMIT_CORE, &core_);
  // The hard limit stays, so that the destructor can go back.
  const rlimit none{0, core_.rlim_max};
  (void)setrlimit(RLIMIT_CORE, &none);
  (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

KeepSecrets::~KeepSecrets() {
  // 2 (readable by root only) is the kernel's to give, not ours to set.
  if (dumpable_ == 1) (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  (void)setrlimit(RLIMIT_CORE, &core_);
}

}  // namespace situla
