// What does Slurm call a job's cgroup?
#include "plugin/broker/node/cgroup_place.hpp"

#include <catch2/catch.hpp>

using namespace situla;

TEST_CASE("a job's cgroup has its number, or from Slurm 26.05 on its SLUID") {
  CHECK(job_component(7, "0::/system.slice/node1_slurmstepd.scope/job_7/step_0/slurm\n") == "/job_7");
  CHECK(job_component(7, "4:memory:/slurm/uid_1000/job_7/step_0\n1:name=systemd:/\n") == "/job_7");
  CHECK(job_component(7, "0::/system.slice/node1_slurmstepd.scope/s2D1M8KFRQN300/step_0/slurm\n") == "/s2D1M8KFRQN300");
  CHECK(job_component(7, "0::/system.slice/slurmstepd.scope/s2D1M8KFRQN300/situla\n") == "/s2D1M8KFRQN300");
}

TEST_CASE("what only resembles a job's cgroup is none") {
  CHECK(job_component(7, "") == "/job_7");
  CHECK(job_component(7, "0::/system.slice/slurmd.service\n") == "/job_7");
  CHECK(job_component(7, "0::/system.slice/node1_slurmstepd.scope/job_77/step_0\n") == "/job_7");
  for (const char* other : {"s2D1M8KFRQN30", "s2D1M8KFRQN3000", "s2d1m8kfrqn300", "x2D1M8KFRQN300"})
    CHECK(job_component(7, std::string("0::/") + other + "/step_0\n") == "/job_7");
  // Version 1 has always had numbers.
  CHECK(job_component(7, "4:memory:/slurm/s2D1M8KFRQN300/step_0\n") == "/job_7");
}

TEST_CASE("what a job has made beneath its own cgroup does not stand for it") {
  CHECK(job_component(7, "0::/scope/s2D1M8KFRQN300/step_0/user/s2D1M8KFRQN301\n") == "/s2D1M8KFRQN300");
  CHECK(job_component(7, "0::/scope/s2D1M8KFRQN300/step_0/user/job_8\n") == "/s2D1M8KFRQN300");
}
