#include "plugin/broker/slurm_proxy.hpp"

#include <cerrno>

#include <sys/random.h>
#include <syslog.h>

#include "common/protocol/contract.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

/// How long commands may take to end: srun cancels its step.
constexpr std::chrono::seconds kEndOfCommands{3};

void log_failure(const Step& step, const Error& error) {
  syslog(LOG_WARNING, "job %u step %u: %s: %s", step.request.job_id, step.request.step_id,
         phrase(RootOperation::run_slurm_commands).data(), as_one_line(error.message()).c_str());
}

}  // namespace

SlurmProxy::SlurmProxy(Listener listener, const StepToken& token)
    : door_{std::move(listener.address), token}, listener_(std::move(listener.fd)) {}

std::optional<SlurmProxy> SlurmProxy::prepare(const Step& step) {
  if (!step.request.slurm_inside || step.config.slurm_inside.empty()) return std::nullopt;
  StepToken token{};
  auto listener = listen_abstract();
  if (listener && getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    listener = fail_errno(errno, "read random bytes");
  if (listener) return SlurmProxy(std::move(*listener), token);
  log_failure(step, listener.error());
  return std::nullopt;
}

Result<void> SlurmProxy::start(const Step& step, const TaskPlace& place, const std::string& digest) {
  TRY_ASSIGN(CgroupPlace cgroup, step.launcher.cgroups.step());
  const std::string srun = step.slurm_program("srun");
  const SlurmProxyInput input{door_.token,
                              srun.substr(0, srun.rfind('/')),
                              step.config.slurm_inside,
                              step.request.slurm_conf,
                              place.directory,
                              digest,
                              step.request.step_id == kBatchStep || step.request.step_id == kInteractiveStep};
  TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-slurm-proxy", encode_slurm_proxy_input(input)));
  Launch what = in_task_place(step, place, Program::slurm_proxy, {}, std::move(cgroup));
  what.directory = "/";
  what.fds.emplace_back(listener_.get(), slurm_proxy_fd::kListener);
  what.fds.emplace_back(memory.get(), slurm_proxy_fd::kInput);
  TRY_ASSIGN(helper_, step.launcher.launch_helper(std::move(what), builder_fd::kBroker));
  return {};
}

void SlurmProxy::watch(PollSet& set, const Step& step, const std::optional<TaskPlace>& place,
                       const std::string& digest) {
  // Who connects is not looked at here, and what he sends is not read.
  if (!helper_ && listener_ && place)
    set.add(listener_.get(), [this, &step, &place, &digest] {
      const auto started = start(step, *place, digest);
      if (started) return;
      listener_.reset();
      log_failure(step, started.error());
    });
  if (helper_ && helper_->socket)
    set.add(helper_->socket.get(), [this, &step] {
      // Once, whatever its user has it say.
      const auto message = hear(helper_->socket.get());
      if (const auto* failure = message && *message ? std::get_if<Failure>(&**message) : nullptr)
        log_failure(step, error_of(*failure));
      // It was killed, or failed: a second one might as well.
      helper_->socket.reset();
      listener_.reset();
    });
}

void SlurmProxy::end() {
  listener_.reset();
  if (!helper_) return;
  helper_->socket.reset();
  (void)helper_->process.wait_for(kEndOfCommands);
  helper_.reset();
}

}  // namespace situla
