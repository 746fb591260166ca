// What does slurmstepd do with a step? The callbacks in Slurm's order, tasks that are forked, and a look at what is
// left.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/plugin/slurm_host.hpp"

namespace situla::test {

/// Blocks of memory, descriptors and processes that were there before; the log begins anew. CHECKed at the end: nothing
/// has been added.
class Balance {
 public:
  Balance();
  /// `lost_descriptors`: this many more are known to be lost.
  void check(size_t lost_descriptors = 0) const;

 private:
  long live_;
  std::set<int> descriptors_;
};

struct StepSetup {
  std::vector<std::pair<std::string, std::string>> options;  ///< name without dashes, value
  std::vector<std::string> words;                            ///< of plugstack.conf
  bool contain_spank = false;  ///< user_init, task_post_fork and task_exit in a child with descriptors of its own
  Job job;
};

/// A job of the node's user; his image is what every step of it asks for; its tasks are kTaskScript.
StepSetup container_step();

struct TaskEnd {
  bool refused = false;  ///< a callback did, before exec
  int code = 0;          ///< exit status otherwise; -1: a signal, or a program that could not be executed
  std::string output;
};

/// From slurmstepd's start to its end. A plugin that fails is treated as `optional` plugins are: whatever it returns,
/// Slurm goes on to the next callback.
class Step {
 public:
  explicit Step(StepSetup setup);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();

  /// init, options, init_post_opt, user_init.
  void start();
  /// Forks all, places them, lets them go, waits.
  std::vector<TaskEnd> run_tasks(uint32_t count);
  /// exit; then the plugin is unloaded. CHECKs that no memory, descriptor or process is left.
  void end();

 private:
  struct Task {
    pid_t pid = -1;
    int go = -1;      ///< where the task waits until its cgroup is there
    int output = -1;  ///< its standard output
  };

  void call_contained(const std::string& name, int task);
  void call_user_init();
  Task fork_task(int number);
  [[noreturn]] void task(int number, int go, int output);
  TaskEnd wait_for(Task task);

  StepSetup setup_;
  std::unique_ptr<SlurmHost> host_;
  Balance balance_;
};

/// Waits for processes that lost their parent; "" when all have ended well within a minute.
std::string reap_orphans();
/// LeakSanitizer's opinion, in a sanitized build: CHECKs that there are none up to now.
void check_leaks();

}  // namespace situla::test
