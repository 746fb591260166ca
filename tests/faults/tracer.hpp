// What makes the n-th call of a program fail, in whatever process of those that are watched it is made?
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <stdint.h>
#include <sys/types.h>

#include "tests/faults/calls.hpp"

namespace situla::faults {

/// What is to happen, and to whom.
struct Order {
  std::string program;   ///< the name of its file
  std::string argument;  ///< that it must have been started with; empty: any
  std::string inside;    ///< only calls made by functions of this library, as the stack looks; empty: any
  std::string call;      ///< only this one, by its name; empty: any
  std::string operand;   ///< only calls whose path or descriptor ends so; empty: any
  Fault fault = Fault::eio;
  uint64_t nth = 0;      ///< from 1; 0: calls are counted only
  unsigned seconds = 3;  ///< how long Fault::stop lasts
};

/// What happened.
struct Outcome {
  uint64_t possible = 0;  ///< calls that could have failed so
  bool reached = false;
  pid_t process = 0;
  std::string call, operand;
  std::vector<std::string> arguments;  ///< of the process
  std::vector<std::string> callers;    ///< FILE+0xOFFSET, innermost first; some may be left-overs on the stack
};

/// Seizes processes (ptrace(2)) and follows what they start. Only calls of the chosen program stop, everything else
/// runs at full speed. When it ends, the kernel lets go of all of them.
class Tracer {
 public:
  explicit Tracer(Order order) : order_(std::move(order)) {}

  /// All threads of a process. False when it cannot be traced.
  bool seize(pid_t process);
  /// Until `command` has ended, whose wait status is returned; or, with 0, until there is no process or a signal comes.
  int run(pid_t command);
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

 private:
  /// What was executed; shared by what it forks.
  struct Program {
    bool chosen = false;
    uint64_t loader_begin = 0, loader_end = 0;
  };
  struct Thread {
    Program program;
    pid_t process = 0;
    bool known = false;  ///< its parent has told of it; until then it is held
    bool held = false;
    std::optional<Failure> due;  ///< of the call that it is in
    uint64_t argument_before = 0;
  };

  void stopped(pid_t tid, int status);
  void started(pid_t parent, pid_t child);
  void executed(pid_t tid);
  void at_call(pid_t tid, Thread& thread);
  void at_entry(pid_t tid, Thread& thread, const Call& call, uint64_t instruction, uint64_t stack);
  void at_exit(pid_t tid, Thread& thread);
  void strike(pid_t tid, Thread& thread, const Failure& failure);
  void note(const Thread& thread, const Call& call, uint64_t stack);
  [[nodiscard]] bool is_meant(const Call& call, uint64_t stack) const;
  [[nodiscard]] bool made_inside(pid_t process, uint64_t stack) const;
  [[nodiscard]] Program look_at(pid_t process) const;
  /// A clock stays as it is.
  [[nodiscard]] bool over() const { return order_.nth != 0 && outcome_.reached && clock_step(order_.fault) == 0; }
  void go_on(pid_t tid, const Thread& thread, int signal) const;

  Order order_;
  Outcome outcome_;
  std::unordered_map<pid_t, Thread> threads_;
  pid_t stopped_process_ = 0;
};

}  // namespace situla::faults
