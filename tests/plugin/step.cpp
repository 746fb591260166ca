#include "tests/plugin/step.hpp"

#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/plugin/clone_vm.hpp"
#include "tests/plugin/faults.hpp"
#include "tests/plugin/node.hpp"

extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace situla::test {
namespace {

constexpr int kRefused = 17;
constexpr int kNotExecuted = 127;

std::set<int> open_descriptors() {
  std::set<int> open;
  for (int fd = 0; fd < 256; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) open.insert(fd);
  return open;
}

std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t size = 0; (size = read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(size));
  return text;
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
  return ends;
}

}  // namespace

Balance::Balance() : live_(live_blocks()) {
  clear_log();  // its descriptor was there before, too
  descriptors_ = open_descriptors();
}

void Balance::check(size_t lost_descriptors) const {
  CHECK(live_blocks() == live_);
  std::vector<int> added;
  for (const int fd : open_descriptors())
    if (!descriptors_.contains(fd)) added.push_back(fd);
  CHECK(added.size() <= lost_descriptors);
  for (const int fd : added) close(fd);
  CHECK(reap_orphans().empty());
  CHECK_THAT(log_text(), !Catch::Contains("test: "));
}

std::string reap_orphans() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string problem;
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(-1, &status, WNOHANG);
    if (ended < 0) return problem;
    if (ended > 0) {
      // 127: it could not be executed, which is what some tests are about.
      if (status != 0 && status != kNotExecuted << 8)
        problem += "process " + std::to_string(ended) + " ended with " + std::to_string(status) + "; ";
      continue;
    }
    if (std::chrono::steady_clock::now() > limit) return problem + "a process is left";
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void check_leaks() {
  if (__lsan_do_recoverable_leak_check == nullptr) return;
  CHECK(__lsan_do_recoverable_leak_check() == 0);
}

StepSetup container_step() {
  StepSetup setup;
  setup.options = {{"container-image", kImage}, {"container-env", "KEPT"}};
  setup.job.uid = kUserId;
  setup.job.gid = kGroupId;
  setup.job.groups = {kGroupId, kOtherGroupId};
  setup.job.environment = {std::string("HOME=") + kHome,
                           std::string("PWD=") + kHome,
                           "USER=tester",
                           "PATH=/usr/bin:/bin",
                           "LANG=C.UTF-8",
                           "KEPT=outside",
                           "SLURM_PROCID=0",
                           "SLURM_LOCALID=0"};
  setup.job.arguments = {"/bin/sh", "-c", kTaskScript};
  return setup;
}

Step::Step(StepSetup setup) : setup_(std::move(setup)) {
  host_ = std::make_unique<SlurmHost>(S_CTX_REMOTE, &setup_.job, setup_.words);
}

Step::~Step() = default;

/// The callbacks that contain_spank moves.
void Step::call_contained(const std::string& name, int task) {
  if (!setup_.contain_spank) {
    (void)host_->call(name, task);
    return;
  }
  const std::string problem = run_in_clone([&] { (void)host_->call(name, task); });
  INFO(name << " in a clone: " << problem);
  CHECK(problem.empty());
}

void Step::call_user_init() {
  const auto body = [&] {
    REQUIRE((setegid(setup_.job.gid) == 0 && seteuid(setup_.job.uid) == 0));
    (void)host_->call("user_init");
    REQUIRE((seteuid(0) == 0 && setegid(0) == 0));
  };
  if (setup_.contain_spank)
    CHECK(run_in_clone(body).empty());
  else
    body();
}

void Step::start() {
  (void)host_->call("init");
  for (const auto& [name, value] : setup_.options) (void)host_->set_option(name, value.c_str());
  (void)host_->call("init_post_opt");
  call_user_init();
}

void Step::task(int number, int go, int output) {
  if (host_->call("task_init_privileged", number) < 0) _exit(kRefused);
  const Job& job = setup_.job;
  if (setgroups(job.groups.size(), job.groups.data()) != 0 || setresgid(job.gid, job.gid, job.gid) != 0 ||
      setresuid(job.uid, job.uid, job.uid) != 0 || chdir(kHome) != 0 || dup2(output, STDOUT_FILENO) < 0)
    _exit(kNotExecuted);
  char letter = 0;
  if (read(go, &letter, 1) != 1) _exit(kNotExecuted);
  const long live = live_blocks();
  const int status = host_->call("task_init", number);
  if (live_blocks() != live) add_to_log("test: task_init keeps memory");
  if (status < 0) _exit(kRefused);
  std::vector<char*> arguments, environment;
  for (const std::string& text : job.arguments) arguments.push_back(const_cast<char*>(text.c_str()));
  for (const std::string& text : job.environment) environment.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  execve(arguments[0], arguments.data(), environment.data());
  _exit(kNotExecuted);
}

Step::Task Step::fork_task(int number) {
  const auto go = make_pipe();
  const auto output = make_pipe();
  Task made{fork(), go[1], output[0]};
  REQUIRE(made.pid >= 0);
  if (made.pid == 0) {
    close(go[1]);
    task(number, go[0], output[1]);
  }
  close(go[0]);
  close(output[1]);
  return made;
}

TaskEnd Step::wait_for(Task task) {
  TaskEnd end;
  end.output = read_to_end(task.output);
  close(task.output);
  int status = 0;
  REQUIRE(waitpid(task.pid, &status, 0) == task.pid);
  end.refused = WIFEXITED(status) && WEXITSTATUS(status) == kRefused;
  end.code = WIFEXITED(status) && WEXITSTATUS(status) != kNotExecuted ? WEXITSTATUS(status) : -1;
  return end;
}

std::vector<TaskEnd> Step::run_tasks(uint32_t count) {
  std::vector<Task> tasks;
  for (uint32_t number = 0; number < count; ++number) tasks.push_back(fork_task(static_cast<int>(number)));
  for (uint32_t number = 0; number < count; ++number) {
    call_contained("task_post_fork", static_cast<int>(number));
    REQUIRE(write(tasks[number].go, "g", 1) == 1);
    close(tasks[number].go);
  }
  std::vector<TaskEnd> ends;
  for (uint32_t number = 0; number < count; ++number) {
    ends.push_back(wait_for(tasks[number]));
    call_contained("task_exit", static_cast<int>(number));
  }
  return ends;
}

void Step::end() {
  (void)host_->call("exit");
  host_.reset();
  // What task_exit closes in its clone stays open in slurmstepd, which ends now.
  balance_.check(setup_.contain_spank ? 1 : 0);
}

}  // namespace situla::test
