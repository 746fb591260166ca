// situla-broker: the root side of one step on one node. Started by the plugin in slurmstepd; see plugin/README.md.
#include <csignal>
#include <cstdio>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/protocol/contract.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/after_job.hpp"
#include "plugin/broker/broker.hpp"
#include "plugin/broker/prolog.hpp"

namespace situla {
namespace {

constexpr size_t kMaxRequestBytes = size_t{16} << 20U;

Result<UniqueFd> take(int fd) {
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) return UniqueFd(fd);
  return fail(Error::from_errno(errno, "descriptor " + std::to_string(fd))
                  .with_code(ErrorCode::installation)
                  .with_hint("situla-broker is started by spank_situla.so, not by hand"));
}

Result<StepRequest> take_request() {
  TRY_ASSIGN(const UniqueFd request, take(broker_fd::kRequest));
  TRY_ASSIGN(const std::string bytes, read_sealed_memory(request.get(), kMaxRequestBytes));
  return decode_step_request(bytes);
}

Result<BrokerInput> take_input() {
  BrokerInput input;
  TRY_ASSIGN(input.control, take(broker_fd::kControl));
  TRY_ASSIGN(input.listener, take(broker_fd::kListener));
  TRY_ASSIGN(input.environment, take(broker_fd::kEnvironment));
  TRY_ASSIGN(input.request, take_request());
  return input;
}

Result<PrologInput> take_prolog_input() {
  PrologInput input;
  TRY_ASSIGN(input.epilog, take(broker_fd::kListener));
  TRY_ASSIGN(input.environment, take(broker_fd::kEnvironment));
  TRY_ASSIGN(input.request, take_request());
  if (input.request.step_id != kPrologStep || input.request.origin != ImageOrigin::registry)
    return fail(ErrorKind::corrupt, "the request is none of a job's prolog");
  return input;
}

template <typename Input>
int serve(Result<Input> input, void (*run)(Input)) {
  if (!input) {
    syslog(LOG_ERR, "%s", input.error().message().c_str());
    (void)std::fprintf(stderr, "situla-broker: %s\n", input.error().text().c_str());
    return 1;
  }
  run(std::move(*input));
  return 0;
}

/// A process of the step, for the plugin to see when Slurm ends the step. Other signals are for the user's programs.
int wait_to_be_killed() {
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM}) (void)std::signal(number, SIG_IGN);
  for (;;) pause();
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  situla::take_program_name();
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "sweep") return situla::sweep_step(argv[2], argv[3], argv[4]);
  if (argc == 2 && mode == "wait") return situla::wait_to_be_killed();
  umask(022);
  if (argc == 5 && mode == "epilog") return situla::end_job(argv[2], argv[3], std::string_view(argv[4]) == "job");
  (void)std::signal(SIGPIPE, SIG_IGN);
  openlog("situla-broker", LOG_PID, LOG_DAEMON);
  if (argc == 2 && mode == "prolog") return situla::serve(situla::take_prolog_input(), situla::import_before_steps);
  return situla::serve<situla::BrokerInput>(situla::take_input(),
                                            [](auto input) { situla::Broker(std::move(input)).run(); });
}
