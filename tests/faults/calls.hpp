// Which system call can fail how? By its manual page, and by what its descriptor or path is.
#pragma once

#include <optional>
#include <string>

#include <stdint.h>
#include <sys/types.h>

namespace situla::faults {

/// What happens to the chosen call, or to the process that makes it.
enum class Fault {
  enospc,
  edquot,
  eio,
  emfile,
  enfile,
  enomem,
  eintr,
  eagain,
  estale,
  short_read,
  short_write,
  kill,
  term,
  stop,
  clock_forward,  ///< from the chosen call on the clock of the program's processes is a day ahead
  clock_back,
};

std::optional<Fault> fault_of(const std::string& name);
/// Of the faults that are errors; 0 for the others.
int error_number(Fault fault);
/// Seconds that the clock jumps by; 0 for what is not about clocks.
int64_t clock_step(Fault fault);

/// A thread that is about to make a system call.
struct Call {
  pid_t process = 0;
  uint64_t number = 0;
  uint64_t arguments[6] = {};
};

/// How the call is made to fail, where it can.
struct Failure {
  enum class Way {
    instead,  ///< the error in place of the call
    after,    ///< the call is made, and then reports the error: close(2)
    less,     ///< the call is made for fewer bytes or blocks: argument `argument` becomes `value`
    clock,    ///< the call tells another time: the seconds are where argument `argument` points
  };
  Way way = Way::instead;
  unsigned argument = 0;
  uint64_t value = 0;
};

std::optional<Failure> failure_of(const Call& call, Fault fault);

/// For reports: "openat", or its number.
std::string name_of(uint64_t number);
/// The path or the descriptor that it is about, as far as that is known.
std::string operand_of(const Call& call);

}  // namespace situla::faults
