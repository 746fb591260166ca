#include "plugin/broker/broker.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include <syslog.h>

#include "common/base/text.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/after_job.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/container.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {

Broker::Broker(BrokerInput input)
    : control_(std::move(input.control)),
      name_("job " + std::to_string(input.request.job_id) + " step " + std::to_string(input.request.step_id)),
      clients_(std::move(input.listener), input.request.uid, input.request.token),
      report_(input.request) {
  if (const auto started = start(std::move(input.request), std::move(input.environment)); !started)
    fail_step(started.error());
}

void Broker::run() {
  while (!done_) poll_once();
}

Result<void> Broker::start(StepRequest request, UniqueFd environment) {
  TRY_ASSIGN(step_, Step::open(std::move(request), std::move(environment), control_.get()));
  courier_ = Courier::prepare(*step_);
  slurm_ = SlurmProxy::prepare(*step_);
  // An image may not be needed if the container has a name: the builder will say so.
  if (step_->request.origin != ImageOrigin::registry || step_->request.named) return {};
  TRY(begin_import());
  auto* importing = std::get_if<phase::Importing>(&phase_);
  if (importing == nullptr) return {};
  // While the importer works; should it fail, the attempt that needs it says so.
  if (auto mapping = make_mapping_namespace(step_->user.uid, step_->user.gid)) importing->mapping = std::move(*mapping);
  return {};
}

void Broker::poll_once() {
  changed_ = false;
  auto* ready = std::get_if<phase::Ready>(&phase_);
  const std::function<void(Client&)> on_ask = [this](Client& client) { on_asked(client); };
  PollSet set;
  // Before the clients, who may become more of them.
  if (ready != nullptr && ready->save)
    for (UniqueFd& task : ready->save->tasks) set.add(task.get(), [&] { on_task_ended(task); });
  clients_.watch(set, on_ask);
  watch_phase(set);
  clients_.watch_listener(set);
  set.add(control_.get(), [this] { on_control(); });
  set.add(recorder_.pidfd(), [] {});
  if (slurm_) slurm_->watch(set, *step_, place_, report_.digest);
  const auto event = clients_.next_event();
  const auto next = std::min(event, recorder_.deadline().value_or(event));
  if (const auto waited = set.wait(std::min(next, deadline().value_or(next)), changed_); !waited) {
    syslog(LOG_ERR, "%s", waited.error().message().c_str());
    done_ = true;
  }
  recorder_.check();
  report_.keep_now_and_then();
  clients_.drop_lost();
  const bool working =
      std::holds_alternative<phase::Importing>(phase_) || std::holds_alternative<phase::Building>(phase_);
  // The tasks were cancelled while they waited: nobody needs the image or the container any more.
  if (working && clients_.gave_up()) fail_step(Error(ErrorKind::cancelled, "the step was cancelled"));
  on_deadline();
  clients_.say_alive();
  begin_if_possible();
}

void Broker::watch_phase(PollSet& set) {
  if (auto* importing = std::get_if<phase::Importing>(&phase_)) {
    ImageImport& import = importing->import;
    // Before the importer: it would only say that its input ended.
    set.add(import.request_writer(), [&] {
      if (const auto written = import.on_request_writer(clients_); !written) import_failed(written.error());
    });
    set.add(import.importer(), [&] { on_imported(import.on_importer(*step_, clients_)); });
    set.add(import.store(), [&] { on_imported(import.on_store(*step_, clients_)); });
    if (importing->build) set.add(importing->build->builder.socket(), [this] { on_builder(); });
  }
  for (auto ending = ending_imports_.begin(); ending != ending_imports_.end(); ++ending) {
    for (const int socket : {ending->request_writer(), ending->importer(), ending->store()})
      set.add(socket, [this, ending, socket] { ending->ignore(*step_, socket); });
    set.add(ending->ending(), [this, ending] {
      if (!ending->on_ended(*step_)) return;
      ending_imports_.erase(ending);
      changed_ = true;
    });
  }
  if (auto* building = std::get_if<phase::Building>(&phase_))
    set.add(building->build.builder.socket(), [this] { on_builder(); });
  if (auto* found = std::get_if<phase::Ready>(&phase_)) {
    phase::Ready& ready = *found;
    // It has nothing more to say, and is the user's.
    set.add(
        ready.builder.socket(), [&ready] { ready.builder.helper.socket.reset(); }, 0);
    // One after the other: when the last is gone, all are.
    const bool all_have_it = ready.granted >= step_->request.local_tasks && !ready.save;
    if (all_have_it && !ready.tasks.empty()) set.add(ready.tasks.back().get(), [this] { on_task_gone(); });
    if (ready.published) set.add(ready.published->listener(), [&] { on_other_step(ready); });
  }
}

std::optional<Deadline> Broker::deadline() const {
  if (const auto* importing = std::get_if<phase::Importing>(&phase_)) return importing->deadline;
  if (const auto* building = std::get_if<phase::Building>(&phase_)) return building->deadline;
  return std::nullopt;
}

void Broker::begin_time_anew() {
  const auto now = std::chrono::steady_clock::now();
  if (auto* importing = std::get_if<phase::Importing>(&phase_))
    importing->deadline = now + step_->config.import_timeout;
  else if (auto* building = std::get_if<phase::Building>(&phase_))
    building->deadline = now + step_->config.build_timeout;
}

void Broker::on_deadline() {
  const auto end = deadline();
  if (!end || std::chrono::steady_clock::now() < *end) return;
  const SiteConfig& config = step_->config;
  // Whoever is at work stands still: what is left for it when the job goes on, nobody knows.
  if (step_->launcher.cgroups.is_suspended()) return begin_time_anew();
  if (std::holds_alternative<phase::Importing>(phase_))
    import_failed(
        Error(ErrorKind::failure,
              "importing the image took longer than " + std::to_string(config.import_timeout.count()) + " s")
            .with_code(ErrorCode::time_limit)
            .with_hint(
                "import it once into a file (situla import -o FILE), without this limit, and give the file's path "
                "instead of its name; administrators: import_timeout in " SITULA_SYSCONF_DIR "/situla.toml"));
  else
    fail_step(Error(ErrorKind::failure,
                    "preparing the container took longer than " + std::to_string(config.build_timeout.count()) + " s")
                  .with_code(ErrorCode::time_limit)
                  .with_hint("a hook or the image's /etc/rc may hang: what was said above, if anything, is theirs; "
                             "administrators: build_timeout in " SITULA_SYSCONF_DIR "/situla.toml"));
}

// Slurmstepd.

void Broker::on_control() {
  const auto bytes = receive_bytes(control_.get(), kMaxMessageBytes);
  if (bytes && *bytes) {
    const auto message = decode(**bytes);
    if (message && std::holds_alternative<StepPrepared>(*message) && !std::holds_alternative<phase::Failed>(phase_))
      if (const auto prepared = step_prepared(); !prepared) fail_step(prepared.error());
    if (!message || !std::holds_alternative<Finish>(*message)) return;
    finish(true);
    const bool json = step_ && step_->config.json_log;
    (void)send_packet(control_.get(), encode(Finished{json ? report_.json() : report_.text()}));
  } else {
    // slurmstepd is gone. Slurm itself would leave its tasks running.
    finish(false);
  }
  report_.keep_at_end();
  if (step_) {
    refresh_inventory(*step_);
    step_->launcher.cgroups.remove_idle_shares();
  }
  done_ = changed_ = true;
}

/// When slurmstepd says so, or a task asks. From then on what the user wrote and what strangers send may be read.
Result<void> Broker::step_prepared() {
  NodeCgroups& cgroups = step_->launcher.cgroups;
  if (cgroups.step_prepared()) return {};
  TRY_CONTEXT(phrase(RootOperation::move_to_cgroup), cgroups.step_is_prepared(step_->slurmstepd.get()));
  auto* importing = std::get_if<phase::Importing>(&phase_);
  if (importing != nullptr) TRY(write_request(*importing));
  // Without one the store program asks the registry, as on a single node.
  if (const auto started = courier_ ? courier_->start(*step_) : Result<void>(); !started)
    syslog(LOG_WARNING, "%s: %s: %s", name_.c_str(), phrase(RootOperation::start_courier).data(),
           as_one_line(started.error().message()).c_str());
  return {};
}

// Tasks, and brokers of other steps.

void Broker::on_asked(Client& client) {
  if (std::holds_alternative<phase::Failed>(phase_))
    refuse(client);
  else if (std::holds_alternative<phase::Ready>(phase_))
    grant(client);
  else if (const auto* fetched = std::get_if<phase::Fetched>(&phase_))
    (void)Clients::answer(client, fetched->answer);
}

void Broker::grant(Client& client) {
  auto& ready = std::get<phase::Ready>(phase_);
  std::vector<int> fds = ready.container.namespaces.numbers();
  fds.push_back(ready.container.environment.get());
  UniqueFd socket = Clients::answer(
      client,
      JoinReply{ready.container.workdir, ready.container.namespaces.isolation, ready.container.has_range,
                slurm_ ? slurm_->door(ready.container.namespaces.isolation) : std::string()},
      fds);
  if (!socket) return;
  if (ready.save) ready.save->tasks.push_back(std::move(socket));
  if (client.pidfd) ready.tasks.push_back(std::move(client.pidfd));
  ++ready.granted;
}

void Broker::refuse(Client& client) {
  auto& failed = std::get<phase::Failed>(phase_);
  Failure failure = Failure::of(failed.error);
  if (std::exchange(failed.told, true)) failure.text = failure.hint = "";
  (void)Clients::answer(client, failure);
}

/// Of the same user: nobody else can enter the socket's directory.
void Broker::on_other_step(phase::Ready& ready) {
  const auto connection = accept_from(ready.published->listener());
  if (!connection) return;
  const auto peer = peer_credentials(connection->get());
  if (!peer || peer->uid != 0) return;
  std::vector<int> fds = ready.container.namespaces.numbers();
  fds.push_back(ready.for_others.get());
  if (ready.published->directory()) fds.push_back(ready.published->directory().get());
  const JoinReply reply{ready.container.workdir, ready.container.namespaces.isolation, ready.container.has_range};
  ready.shared = tell(connection->get(), reply, fds) || ready.shared;
}

/// The task of a step with --container-save: its program has ended, or it was killed. The last program's end begins the
/// save; should its task be killed, the save begins with Finish.
void Broker::on_task_ended(UniqueFd& connection) {
  const UniqueFd socket = std::move(connection);
  ContainerSave& container_save = *std::get<phase::Ready>(phase_).save;
  const auto message = hear(socket.get());
  if (!message || !*message || !std::holds_alternative<TaskEnded>(**message)) return;
  Message answer = Finished{};
  if (container_save.count_ended() == step_->request.local_tasks) {
    let_nobody_in();
    if (const auto saved = save(socket.get()); !saved) answer = Failure{saved.error().kind(), "", ""};
  }
  (void)tell(socket.get(), answer);
}

/// When the last of them has ended, the container's namespaces are taken down while slurmstepd still finds out. Other
/// steps that have joined have them, too.
void Broker::on_task_gone() {
  auto& ready = std::get<phase::Ready>(phase_);
  ready.tasks.pop_back();
  changed_ = true;
  if (!ready.tasks.empty()) return;
  report_.end();
  ready.published.reset();
  ready.container = StepContainer{};
  ready.for_others.reset();
}

// The end.

/// --container-save, if all local tasks have got their container (COMPAT.md 1). `task`: as of ContainerSave::run().
Result<void> Broker::save(int task) {
  auto& ready = std::get<phase::Ready>(phase_);
  if (!ready.save || ready.granted < step_->request.local_tasks) return {};
  report_.begin(StepPhase::save);
  report_.keep();
  auto saved = ready.save->run(*step_, *place_, clients_.limit(), task);
  report_.end();
  if (!saved) report_.failed(saved.error());
  return saved;
}

void Broker::let_nobody_in() {
  changed_ = true;
  clients_.close();
  if (auto* ready = std::get_if<phase::Ready>(&phase_)) ready->published.reset();
}

void Broker::finish(bool orderly) {
  let_nobody_in();
  report_.end();
  recorder_.end(name_);
  if (slurm_) slurm_->end();
  if (auto* ready = std::get_if<phase::Ready>(&phase_); ready != nullptr && ready->save) {
    ready->save->say_rest();
    if (orderly && !ready->save->begun()) (void)save(-1);
  }
  take_down(std::exchange(phase_, phase::Waiting{}), orderly);
  if (!step_) return;
  if (courier_) courier_->end(*step_);
  step_->mounts.drop_idle(step_->config.image_mount_idle);
  // slurmstepd does not wait for ever: what it could not remove, because of us, it leaves.
  step_->launcher.cgroups.leave_step(has_hung_up(control_.get()));
}

void Broker::fail_step(const Error& error) {
  // A full store is the administrator's matter, too.
  const bool no_room = error.kind() == ErrorKind::no_space && std::holds_alternative<phase::Importing>(phase_);
  syslog(no_room ? LOG_WARNING : LOG_INFO, "%s: %s%s", name_.c_str(), no_room ? "no room for an image: " : "",
         as_one_line(error.message()).c_str());
  Phase before = std::exchange(phase_, phase::Failed{error});
  changed_ = true;
  clients_.for_each_waiting([this](Client& client) { refuse(client); });
  report_.failed(error);
  report_.keep();
  take_down(std::move(before), false);
}

void Broker::take_down(Phase phase, bool orderly) {
  const auto end_builder = [&](Builder& builder, bool ready) {
    if (builder.end(*step_, *place_, orderly, ready))
      forget_scratch(*step_);
    else
      keep_scratch(*step_, builder.scratch_path);
  };
  auto* importing = std::get_if<phase::Importing>(&phase);
  if (importing != nullptr) importing->import.end(*step_);
  for (ImageImport& ending : ending_imports_) ending.hang_up();  // all at once
  for (ImageImport& ending : ending_imports_) ending.end(*step_);
  ending_imports_.clear();
  if (auto* ready = std::get_if<phase::Ready>(&phase)) {
    if (!orderly) end_processes(*ready);
    ready->container = StepContainer{};
    ready->for_others.reset();
    ready->save.reset();
    if (ready->image) ready->image->leave();
    for (const ImageInUse& other : ready->others) other.leave();
    end_builder(ready->builder, true);
  }
  auto* building = std::get_if<phase::Building>(&phase);
  Build* build = building != nullptr                        ? &building->build
                 : importing != nullptr && importing->build ? &*importing->build
                                                            : nullptr;
  if (build != nullptr) {
    end_builder(build->builder, false);
    // What the image's own scripts have started may outlive the builder.
    if (build->user_namespace) end_container(build->user_namespace.get(), step_->user.uid, build->range);
  }
  // Once for each step on the node, however it ends.
  if (!std::exchange(release_owed_, false)) return;
  if (const auto released = release_site_image(*step_, *place_); !released)
    syslog(LOG_WARNING, "%s: %s", name_.c_str(), as_one_line(released.error().message()).c_str());
}

/// Tasks outlive slurmstepd. In a container that tasks of other steps share only this step's own tasks are ended.
void Broker::end_processes(const phase::Ready& ready) const {
  if (!ready.shared && ready.user_namespace)
    return end_container(ready.user_namespace.get(), step_->user.uid, ready.range);
  for (const UniqueFd& task : ready.tasks) (void)signal_pidfd(task.get(), SIGKILL);
}

}  // namespace situla
