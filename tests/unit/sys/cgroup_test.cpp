// Which cgroups does something live in that belongs to a step, or outlives it?
#include "common/sys/cgroup.hpp"

#include <catch2/catch.hpp>

using namespace situla;

TEST_CASE("cgroups of a task, its step and its job; version 2 allows processes in leaves only") {
  const std::string task =
      "12:devices:/slurm/uid_1000/job_7/step_0/task_3\n"
      "5:freezer:/slurm/uid_1000/job_7/step_0\n"
      "3:pids:/\n"
      "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_3\n";
  CHECK(step_cgroups(task) ==
        "12:devices:/slurm/uid_1000/job_7/step_0\n"
        "5:freezer:/slurm/uid_1000/job_7/step_0\n"
        "3:pids:/\n"
        "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_3\n");
  CHECK(job_cgroups(task) ==
        "12:devices:/slurm/uid_1000/job_7\n"
        "5:freezer:/slurm/uid_1000/job_7\n"
        "3:pids:/\n"
        "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_3\n");
  CHECK(step_cgroups("").empty());
}
