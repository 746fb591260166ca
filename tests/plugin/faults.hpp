// What if memory runs out, or Slurm refuses, at any one step of the plugin? The n-th step of a kind fails, once.
#pragma once

namespace situla::test {

enum class FaultKind {
  allocation,  ///< operator new throws std::bad_alloc
  slurm,       ///< a function of Slurm returns ESPANK_ERROR
};

/// Everything until disarm_fault(): the n-th step (1 is the first) of this kind made inside a callback fails.
void arm_fault(FaultKind kind, long n);
void disarm_fault();
/// Since it was armed.
bool fault_fired();
/// For Slurm's own functions: shall this call fail?
bool slurm_step_fails();

/// How many blocks of operator new have been allocated inside callbacks and not been freed there.
long live_blocks();

/// While it exists the program counts as being inside the plugin.
class InsidePlugin {
 public:
  InsidePlugin();
  InsidePlugin(const InsidePlugin&) = delete;
  InsidePlugin& operator=(const InsidePlugin&) = delete;
  ~InsidePlugin();
};

/// While it exists it does not: for what the host does when the plugin calls it.
class OutsidePlugin {
 public:
  OutsidePlugin();
  OutsidePlugin(const OutsidePlugin&) = delete;
  OutsidePlugin& operator=(const OutsidePlugin&) = delete;
  ~OutsidePlugin();

 private:
  bool before_;
};

/// Calls until_unharmed's body with n = 1, 2, ... until no step was left to fail; returns how many did.
template <typename Body>
long for_every_fault(FaultKind kind, Body body) {
  for (long n = 1;; ++n) {
    arm_fault(kind, n);
    body(n);
    const bool fired = fault_fired();
    disarm_fault();
    if (!fired) return n - 1;
  }
}

}  // namespace situla::test
