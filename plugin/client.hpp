// How does a task get into its container? It asks the broker, receives namespaces, and joins them. Runs as the job
// user.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/environment.hpp"
#include "plugin/step_monitor.hpp"
#include "plugin/step_session.hpp"

namespace situla {

/// What joining changed for the program that Slurm will execute.
struct JoinedTask {
  Environment set;                 ///< variables of the container that overwrite the job's (COMPAT.md 2)
  std::vector<std::string> unset;  ///< LANG, LANGUAGE, LC_ALL unless kept
};

/// The calling task (task_init, single-threaded, job user) asks, waits for import and preparation (notes go to `log`),
/// joins the container's namespaces, changes into the working directory and installs the id filter.
/// ErrorKind::cancelled with an empty message: another task of this node has reported the error already.
Result<JoinedTask> join_container(const StepSession& session, const ContainerSpec& spec, const Environment& job,
                                  MonitorLine* monitor, LogSink& log);

}  // namespace situla
