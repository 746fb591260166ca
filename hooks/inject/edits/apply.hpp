// How do edits become true in a container's root? On descriptors, every path inside resolved beneath the root
// (DESIGN.md 5), every source opened and looked at before it is used.
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"

namespace situla {

struct EditTarget {
  const RootDir& root;    ///< the container's root, a mount of this mount namespace, in which the caller is root
  std::string root_path;  ///< where it is, for programs that are run
};

/// Everything but the environment, which is the caller's, in the order of ContainerEdits. The first edit that fails
/// ends it, unless it may (on_failure); the error names who asked, what, where and why. A program that fails fails all.
Result<void> apply(const ContainerEdits& edits, const EditTarget& target, LogSink& log);

}  // namespace situla
