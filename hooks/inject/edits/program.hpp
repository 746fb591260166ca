// How is a program of the host run that a CDI specification names? With nothing but what the specification gives it.
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/mount/apply.hpp"

namespace situla {

/// Ends when the program has ended; after its time limit it and all that it started are killed. Its environment is the
/// edit's and a PATH; its standard input is the state that OCI hooks read, with the root's path in "root" and in the
/// config.json of "bundle"; what it writes goes to the log, or into the error. It keeps this process's capabilities,
/// and gains none.
Result<void> run_program(const ProgramEdit& edit, const ApplyTarget& target, LogSink& log);

}  // namespace situla
