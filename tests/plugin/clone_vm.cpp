#include "tests/plugin/clone_vm.hpp"

#include <csignal>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

// Only there in sanitizer builds: AddressSanitizer must know on which stack the one thread runs, or exceptions confuse
// it.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* fake_stack_save, const void** bottom_old,
                                                           size_t* size_old);
}

namespace situla::test {
namespace {

constexpr size_t kStackBytes = size_t{4} << 20U;

struct Child {
  const std::function<void()>* body = nullptr;
  void* stack = nullptr;
  const void* parent_stack = nullptr;
  size_t parent_stack_bytes = 0;
};

void leave_stack_for(const void* bottom, size_t size) {
  if (__sanitizer_start_switch_fiber != nullptr) __sanitizer_start_switch_fiber(nullptr, bottom, size);
}

void arrive_on_stack(const void** old_bottom, size_t* old_size) {
  if (__sanitizer_finish_switch_fiber != nullptr) __sanitizer_finish_switch_fiber(nullptr, old_bottom, old_size);
}

int run_child(void* argument) {
  Child& child = *static_cast<Child*>(argument);
  arrive_on_stack(&child.parent_stack, &child.parent_stack_bytes);
  (void)unshare(CLONE_NEWNS);
  (*child.body)();
  leave_stack_for(child.parent_stack, child.parent_stack_bytes);
  return 0;
}

}  // namespace

std::string run_in_clone(const std::function<void()>& body) {
  Child child;
  child.body = &body;
  child.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (child.stack == MAP_FAILED) return "no memory for a stack";
  leave_stack_for(child.stack, kStackBytes);
  const pid_t pid = clone(run_child, static_cast<char*>(child.stack) + kStackBytes, CLONE_VM | SIGCHLD, &child);
  int status = 0;
  const bool waited = pid > 0 && waitpid(pid, &status, 0) == pid;
  arrive_on_stack(nullptr, nullptr);
  (void)munmap(child.stack, kStackBytes);
  if (!waited) return "the child was lost";
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace situla::test
