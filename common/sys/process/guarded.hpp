// How is a program run that may start others, so that none of them outlives this process? With a guard between the two.
#pragma once

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/process/process.hpp"

namespace situla {

/// A running program and its guard: a small process that ends with the program and with its status. When this process
/// ends first, however it does, or this object goes, the guard kills the program and everything that descends from it,
/// also what has left its process group or session. What the program leaves running when it ends by itself is left
/// alone.
class GuardedProgram {
 public:
  GuardedProgram() = default;
  GuardedProgram(GuardedProgram&& other) noexcept = default;
  GuardedProgram& operator=(GuardedProgram&& other) noexcept = default;
  ~GuardedProgram();

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(guard_); }
  /// Readable when the program has ended; -1 on kernels without pidfds.
  [[nodiscard]] int pidfd() const { return guard_.pidfd(); }
  Result<ExitStatus> wait() { return guard_.wait(); }
  /// nullopt: still running after the time.
  Result<std::optional<ExitStatus>> wait_for(std::chrono::milliseconds time) { return guard_.wait_for(time); }

 private:
  friend Result<GuardedProgram> spawn_guarded(const SpawnOptions& options, bool keep_capabilities);
  GuardedProgram(Child guard, UniqueFd line) : guard_(std::move(guard)), line_(std::move(line)) {}
  Child guard_;
  UniqueFd line_;  ///< its end tells the guard that we are gone
};

/// For a single-threaded process. keep_capabilities: the program has this process's capabilities. An exec failure is
/// reported here, with its errno (ENOEXEC: no program and no "#!" line).
Result<GuardedProgram> spawn_guarded(const SpawnOptions& options, bool keep_capabilities);

}  // namespace situla
