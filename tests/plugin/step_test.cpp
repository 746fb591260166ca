// The plugin in slurmstepd: steps as Slurm runs them, and steps in which something fails.
#include "tests/plugin/step.hpp"

#include <chrono>
#include <thread>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/plugin/faults.hpp"
#include "tests/plugin/node.hpp"
#include "tests/support/skip.hpp"

using namespace situla::test;

namespace {

const std::string kInside = "image=yes lang= kept=outside uid=" + std::to_string(kUserId) + "\n0\n1\n2\n3\n";

std::vector<TaskEnd> run(StepSetup setup, uint32_t tasks) {
  setup.job.local_tasks = setup.job.total_tasks = tasks;
  Step step(std::move(setup));
  step.start();
  std::vector<TaskEnd> ends = step.run_tasks(tasks);
  step.end();
  return ends;
}

/// A step whose container cannot be had must not run its tasks, whatever else fails in it.
void check_refused(const StepSetup& setup, uint32_t tasks) {
  for (const TaskEnd& end : run(setup, tasks)) {
    CHECK(end.refused);
    CHECK(end.output.empty());
  }
}

void check_all_faults(FaultKind kind, const StepSetup& setup, long at_least, uint32_t tasks = 1) {
  const long steps = for_every_fault(kind, [&](long n) {
    INFO("step " << n << " fails");
    check_refused(setup, tasks);
  });
  CHECK(steps > at_least);
  check_leaks();
}

}  // namespace

TEST_CASE("tasks join their container, in a plugin that is loaded twice") {
  SITULA_NODE(Broker::real);
  StepSetup setup = container_step();
  for (const bool contain_spank : {false, true}) {
    setup.contain_spank = contain_spank;
    for (int load = 0; load < 2; ++load) {
      INFO("contain_spank " << contain_spank << ", load " << load);
      const auto ends = run(setup, 2);
      INFO(log_text());
      for (const TaskEnd& end : ends) {
        CHECK(end.code == 0);
        CHECK(end.output == kInside);
      }
      CHECK(log_text().find("error: ") == std::string::npos);
    }
  }
  check_leaks();
}

TEST_CASE("a step without container runs on the host") {
  SITULA_NODE(Broker::missing);
  StepSetup setup = container_step();
  setup.options.clear();
  const auto ends = run(setup, 2);
  for (const TaskEnd& end : ends) CHECK(end.output.starts_with("image= lang=C.UTF-8 kept=outside"));
  CHECK(log_text().find("error: ") == std::string::npos);
}

TEST_CASE("a batch script runs in the container, the job's own extern step has none") {
  SITULA_NODE(Broker::real);
  StepSetup setup = container_step();
  setup.job.step_id = SLURM_BATCH_SCRIPT;
  setup.job.arguments = {kBatchScript};
  CHECK(run(setup, 1).at(0).output == kInside);
  CHECK(log_text().find("error: ") == std::string::npos);

  setup.job.step_id = SLURM_EXTERN_CONT;
  CHECK(run(setup, 1).at(0).output.starts_with("image= lang=C.UTF-8 kept=outside"));
  CHECK(log_text().find("error: ") == std::string::npos);
}

TEST_CASE("an option that the node refuses stops the tasks") {
  SITULA_NODE(Broker::real);
  StepSetup setup = container_step();
  // Slurm itself writes this to the node's log and goes on.
  setup.options.emplace_back("container-env", "1A");
  check_refused(setup, 2);
}

TEST_CASE("an import that has failed before the first task asks is told to it from its beginning") {
  SITULA_NODE(Broker::real);
  StepSetup setup = container_step();
  setup.options = {{"container-image", "127.0.0.1:1#nothing/listens"}};
  setup.job.local_tasks = setup.job.total_tasks = 1;
  Step step(std::move(setup));
  step.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // for the import to fail in
  CHECK(step.run_tasks(1).at(0).refused);
  INFO(log_text());
  CHECK(log_text().find("error: situla: ") != std::string::npos);
  step.end();
}

TEST_CASE("a broker that cannot be started stops the tasks") {
  SITULA_NODE(Broker::missing);
  check_refused(container_step(), 2);
  CHECK_THAT(log_text(), Catch::Contains("situla-broker: No such file"));
}

TEST_CASE("memory that runs out at any step of slurmstepd stops the tasks") {
  SITULA_NODE(Broker::deserter);
  check_all_faults(FaultKind::allocation, container_step(), 60);
}

TEST_CASE("memory that runs out at any step of a slurmstepd that starts no task leaves nothing") {
  SITULA_NODE(Broker::deserter);
  check_all_faults(FaultKind::allocation, container_step(), 60, 0);
}

TEST_CASE("a refusal of Slurm at any step of slurmstepd stops the tasks") {
  SITULA_NODE(Broker::deserter);
  StepSetup setup = container_step();
  for (const bool contain_spank : {false, true}) {
    setup.contain_spank = contain_spank;
    check_all_faults(FaultKind::slurm, setup, 20);
  }
}

TEST_CASE("memory that runs out in a clone of slurmstepd leaves nothing") {
  SITULA_NODE(Broker::deserter);
  StepSetup setup = container_step();
  setup.contain_spank = true;
  const long steps = for_every_fault(FaultKind::allocation, [&](long n) {
    INFO("step " << n << " fails");
    disarm_fault();
    Step step(setup);
    step.start();
    arm_fault(FaultKind::allocation, n);
    CHECK(step.run_tasks(1).at(0).refused);
    step.end();
  });
  CHECK(steps >= 10);
  check_leaks();
}

TEST_CASE("a task for which any step of joining fails does not run outside its container") {
  SITULA_NODE(Broker::real);
  for (const FaultKind kind : {FaultKind::allocation, FaultKind::slurm}) {
    StepSetup setup = container_step();
    setup.job.local_tasks = setup.job.total_tasks = 100000;
    Step step(setup);
    step.start();
    REQUIRE(step.run_tasks(1).at(0).output == kInside);
    long joined = 0;
    const long steps = for_every_fault(kind, [&](long n) {
      INFO("step " << n << " fails");
      const TaskEnd end = step.run_tasks(1).at(0);
      CHECK((end.refused || end.output == kInside));
      if (!end.refused) ++joined;
    });
    CHECK(steps >= 5);
    CHECK(joined >= 1);
    step.end();
  }
  check_leaks();
}

TEST_CASE("memory that runs out while a container is ended leaves nothing of it") {
  SITULA_NODE(Broker::real);
  StepSetup setup = container_step();
  setup.job.local_tasks = setup.job.total_tasks = 2;  // so that the end of one does not end the container
  const long steps = for_every_fault(FaultKind::allocation, [&](long n) {
    INFO("step " << n << " fails");
    disarm_fault();
    Step step(setup);
    step.start();
    CHECK(step.run_tasks(1).at(0).output == kInside);
    arm_fault(FaultKind::allocation, n);
    step.end();
  });
  CHECK(steps >= 1);
  check_leaks();
}
