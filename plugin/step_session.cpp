#include "plugin/step_session.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

namespace situla {

namespace {

/// `program`: its file, if it is open already.
SpawnOptions broker_program(int program) {
  SpawnOptions options;
  options.program = libexec_path("situla-broker");
  options.program_fd = program;
  options.arguments = {"situla-broker"};
  options.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  options.new_session = true;
  return options;
}

/// The broker's program in another mode; waits for its end.
Result<void> run_broker_program(int program, const std::vector<std::string>& arguments, const std::string& what,
                                std::chrono::milliseconds limit) {
  SpawnOptions options = broker_program(program);
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  TRY_ASSIGN(Child child, spawn(options));
  TRY_ASSIGN(const auto status, child.wait_for(limit));
  if (status && status->success()) return {};
  return fail(Error(ErrorKind::failure, what + ": " + (status ? status->text() : std::string("takes too long")))
                  .with_code(ErrorCode::helper));
}

/// The saver is no process that Slurm would end with the step, or only with the last of its signals. This one is: a
/// child of slurmstepd (proctrack/linuxproc) in the tasks' cgroup (proctrack/cgroup).
Result<Child> start_cancel_probe(int program, const std::string& cgroups) {
  SpawnOptions options = broker_program(program);
  options.arguments.emplace_back("wait");
  options.new_session = false;
  TRY_ASSIGN(Child probe, spawn(options));
  TRY(move_to_cgroups(probe.pid(), cgroups));
  return probe;
}

bool has_any(const std::string& directory, const std::function<bool(const std::string&)>& wanted) {
  const auto names = list_directory(directory);
  return names && std::any_of(names->begin(), names->end(), wanted);
}

/// Of a step whose broker was killed, or whose nodes have shared an image.
bool has_left_something(uint32_t job) {
  const std::string of_job = std::to_string(job) + ".", of_container = ".step." + of_job;
  // The socket of a running container is the last thing that a broker without a note has.
  return has_any(kJobsDirectory,
                 [&](const std::string& name) {
                   return name.starts_with(of_job) && (name.ends_with(kScratchNote) || name.ends_with(kIncomingNote) ||
                                                       name.ends_with(kEnvironmentNote));
                 }) ||
         has_any(kContainersDirectory,
                 [&](const std::string& name) { return name.find(of_container) != std::string::npos; });
}

}  // namespace

Result<void> clean_up_after_job(uint32_t job, uid_t user, bool own_containers, std::chrono::milliseconds limit) {
  const auto is_there = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; };
  if (!own_containers && !is_there(job_cgroups_path(job)) && !is_there(job_import_path(job)) &&
      !has_left_something(job))
    return {};
  return run_broker_program(-1,
                            {"epilog", std::to_string(job), std::to_string(user), own_containers ? "job" : "global"},
                            "cleaning up after job " + std::to_string(job), limit);
}

Result<void> start_job_import(const StepRequest& request, std::string_view environment) {
  TRY_ASSIGN(const UniqueFd request_memory, sealed_memory("situla-step", encode_step_request(request)));
  TRY_ASSIGN(const UniqueFd environment_memory, sealed_memory("situla-environment", environment));
  SpawnOptions options = broker_program(-1);
  options.arguments.emplace_back("prolog");
  TRY(make_directories(SITULA_RUNTIME_DIR, 0755));
  TRY(make_directories(kJobsDirectory, 0700));
  // Here and not there: an epilog that comes before the program has begun finds it, and what it says then waits.
  const std::string path = job_import_path(request.job_id);
  TRY_ASSIGN(const UniqueFd listener, listen_at(path));
  options.fds = {{listener.get(), broker_fd::kListener},
                 {request_memory.get(), broker_fd::kRequest},
                 {environment_memory.get(), broker_fd::kEnvironment}};
  auto started = spawn_detached(options);
  if (!started) (void)unlink(path.c_str());
  return started;
}

Result<StepSession> StepSession::start(StepRequest request, std::string_view environment) {
  if (getrandom(request.token.data(), request.token.size(), 0) != static_cast<ssize_t>(request.token.size()))
    return fail_errno(errno, "read random bytes for the step's token");
  TRY_ASSIGN(Listener listener, listen_abstract());
  TRY_ASSIGN(auto control, socket_pair());
  TRY_ASSIGN(const UniqueFd request_memory, sealed_memory("situla-step", encode_step_request(request)));
  TRY_ASSIGN(const UniqueFd environment_memory, sealed_memory("situla-environment", environment));

  auto program = open_file(libexec_path("situla-broker"), O_PATH);
  if (!program) return fail(std::move(program).error().with_code(ErrorCode::installation));
  SpawnOptions options = broker_program(program->get());
  options.fds = {{control.second.get(), broker_fd::kControl},
                 {listener.fd.get(), broker_fd::kListener},
                 {request_memory.get(), broker_fd::kRequest},
                 {environment_memory.get(), broker_fd::kEnvironment}};
  // Out of the process tree of slurmstepd: proctrack/linuxproc signals all of it, and slurmstepd reaps what it finds.
  // The broker notices the end of slurmstepd by its control socket.
  TRY(spawn_detached(options));
  return StepSession(std::move(*program), std::move(control.first), std::move(listener.address), std::move(request));
}

void StepSession::step_is_prepared() const {
  if (control_) (void)send_packet(control_.get(), encode(StepPrepared{}));
}

Result<std::string> StepSession::finish(std::chrono::milliseconds limit, LogSink& log) {
  if (!control_) return "";
  const UniqueFd control = std::move(control_);
  bool saving = false;
  // The broker was killed before it could finish: another one drops what it left on the node.
  const auto lost = [&]() -> Result<std::string> {
    if (request_.save) log.error("--container-save: lost the container's broker: the container is not saved");
    const std::vector<std::string> words = {"sweep", std::to_string(request_.job_id), std::to_string(request_.step_id),
                                            std::to_string(request_.uid)};
    TRY(run_broker_program(program_.get(), words, "cleaning up after a killed broker", limit));
    return "";
  };
  if (!send_packet(control.get(), encode(Finish{}))) return lost();
  constexpr int kLookAgainMs = 200;
  Child probe;
  for (;;) {
    const bool is_unseen = probe && probe.pidfd() < 0;  // before Linux 5.2
    std::array<pollfd, 2> entries = {{{control.get(), POLLIN, 0}, {probe.pidfd(), POLLIN, 0}}};
    const int time = !saving ? static_cast<int>(limit.count()) : is_unseen ? kLookAgainMs : -1;
    const int ready = poll(entries.data(), entries.size(), time);
    if (ready < 0 && errno == EINTR) continue;
    bool is_cancelled = entries[1].revents != 0;
    if (ready == 0 && saving) {
      const auto status = probe.wait_for(std::chrono::milliseconds(0));
      is_cancelled = !status || status->has_value();
      if (!is_cancelled) continue;
    } else if (ready <= 0) {
      break;
    }
    if (is_cancelled) {
      probe = Child();
      saving = false;
      log.error("--container-save: the step was cancelled, nothing is saved");
      if (!send_packet(control.get(), encode(Finish{}))) return lost();
      continue;
    }
    const auto packet = receive_packet(control.get(), kMaxMessageBytes);
    if (!packet || !*packet) return lost();
    TRY_ASSIGN(const Message message, decode((*packet)->bytes));
    if (const auto* finished = std::get_if<Finished>(&message)) return finished->summary;
    if (const auto* note = std::get_if<Note>(&message)) log.write(note->level, note->text);
    if (const auto* begun = std::get_if<Saving>(&message)) {
      saving = true;
      auto started = start_cancel_probe(program_.get(), begun->cgroups);
      if (started)
        probe = std::move(*started);
      else
        log.warning("--container-save: a cancelled step may go on saving: " + started.error().message());
    }
  }
  return fail(Error(ErrorKind::failure, "the container's broker is still cleaning up after " +
                                            std::to_string(limit.count() / 1000) + " s; it goes on by itself"));
}

}  // namespace situla
