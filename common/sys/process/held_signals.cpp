#include "common/sys/process/held_signals.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace situla {

HeldSignals::HeldSignals() {
  sigset_t ending{};
  sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, number);
  pthread_sigmask(SIG_BLOCK, &ending, &before_);
  fd_.reset(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
}

HeldSignals::~HeldSignals() {
  signalfd_siginfo info{};
  while (read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) continue;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool HeldSignals::came() const {
  pollfd look{fd_.get(), POLLIN, 0};
  return poll(&look, 1, 0) == 1;
}

}  // namespace situla
