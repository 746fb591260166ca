// How do edits become true in a container's root? On descriptors, every path inside resolved beneath the root
// (DESIGN.md 5).
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/mount/apply.hpp"

namespace situla {

/// Everything but the environment and the mounts after the hooks, which are the caller's, in the order of
/// ContainerEdits. The first edit that fails ends it, unless it may (on_failure); the error names who asked, what,
/// where and why. A program that fails fails all.
Result<void> apply(const ContainerEdits& edits, const ApplyTarget& target, LogSink& log);

}  // namespace situla
