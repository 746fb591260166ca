// How does an image become a container that tasks can join? Everything from fresh namespaces to the environment of the
// tasks.
#pragma once

#include <chrono>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/run/enter.hpp"

namespace situla {

/// What login shell and /etc/rc of an image may take.
constexpr std::chrono::milliseconds kLoginSessionTime{60000};

/// enter_container(), and then what login shell and /etc/rc decide: environment and working directory of the tasks
/// (COMPAT.md section 6). No image code runs any more; the process's mount, user (and cgroup) namespaces are what tasks
/// join. The environment overwrites the job's (COMPAT.md 2); --container-workdir is checked, no more.
Result<Container> prepare_container(ContainerRequest& request, LogSink& log,
                                    std::chrono::milliseconds session_time = kLoginSessionTime);

}  // namespace situla
