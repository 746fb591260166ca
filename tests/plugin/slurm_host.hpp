// How does a program of Slurm look to its plugin? One loaded plugin in one context, with the functions that Slurm
// exports.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "plugin/slurm_version.hpp"

namespace situla::test {

/// What spank_get_item() answers.
struct Job {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  uint32_t job_id = 4711;
  uint32_t step_id = 0;
  uint32_t local_tasks = 1;
  uint32_t total_tasks = 1;
  std::vector<std::string> environment;  ///< "NAME=VALUE"; spank_setenv() changes it
  std::vector<std::string> arguments;    ///< the task's command
};

/// As spank_option_register() was told.
struct Option {
  std::string name;
  bool has_argument = false;
  int value = 0;
  spank_opt_cb_f callback = nullptr;
};

/// Loads the plugin as Slurm does, calls it, unloads it. One at a time, because spank_context() knows of one.
class SlurmHost {
 public:
  /// `words` follow the plugin in plugstack.conf; `job` may change while the host lives.
  SlurmHost(spank_context_t context, Job* job, std::vector<std::string> words = {});
  SlurmHost(const SlurmHost&) = delete;
  SlurmHost& operator=(const SlurmHost&) = delete;
  ~SlurmHost();

  /// Calls slurm_spank_<name>, 0 if the plugin has none. A crash ends the program, a positive status or an exception
  /// the test.
  int call(const std::string& name, int task = -1);
  /// What `--<name>=value` leads to; value nullptr as Slurm passes it for options without argument.
  int set_option(const Option& option, const char* value);
  int set_option(const std::string& name, const char* value);

  [[nodiscard]] const std::vector<Option>& options() const { return options_; }
  [[nodiscard]] spank_context_t context() const { return context_; }
  [[nodiscard]] Job* job() const { return job_; }
  void add_option(Option option) { options_.push_back(std::move(option)); }
  /// "init" and so on, while a callback runs.
  [[nodiscard]] const std::string& phase() const { return phase_; }

 private:
  void check_symbols() const;

  void* handle_ = nullptr;
  spank_context_t context_;
  Job* job_;
  std::vector<std::string> words_;
  std::vector<Option> options_;
  std::string phase_;
};

/// Everything the plugin said with slurm_error() and its like since the last clear_log(), in forked tasks as well: one
/// line each, beginning with "error: ", "debug: " or nothing.
std::string log_text();
void clear_log();
/// Adds a line; "test: ..." is what must not be there at the end.
void add_to_log(const std::string& line);

}  // namespace situla::test
