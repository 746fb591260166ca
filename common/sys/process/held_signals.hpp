// How is a program told to end when this process is, instead of being killed with it?
#pragma once

#include <chrono>
#include <csignal>

#include "common/base/unique_fd.hpp"

namespace situla {

/// Between SIGTERM and SIGKILL of a command of Slurm's, which tells slurmctld, busy or not, that its job is to end.
constexpr std::chrono::seconds kSrunGrace{15};

/// The signals that end this process (SIGINT, SIGTERM, SIGHUP), held back while it exists. What came is lost with it:
/// whoever waits looks, and returns ErrorKind::cancelled.
class HeldSignals {
 public:
  HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals();
  [[nodiscard]] int fd() const { return fd_.get(); }  ///< readable when one has come
  [[nodiscard]] bool came() const;

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

}  // namespace situla
