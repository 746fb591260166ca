#include "plugin/broker/broker.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <syslog.h>

#include "common/base/text.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kJoinLimit{10};   // from connect() to the token
constexpr std::chrono::seconds kUnwindLimit{1};  // for a cancelled import to remove what it made
constexpr size_t kMaxClients = 4096;
constexpr size_t kMaxNotes = 64;
constexpr size_t kMaxSaid = 65536;  // bytes of all notes of a step's helpers

bool same_token(const StepToken& a, const StepToken& b) {
  unsigned difference = 0;  // every byte is looked at, so that time tells nothing
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a.at(i) ^ b.at(i));
  return difference == 0;
}

}  // namespace

Broker::Broker(BrokerInput input, Result<SiteConfig> config, Result<Launcher> launcher) : input_(std::move(input)) {
  if (launcher)
    launcher_ = std::move(*launcher);
  else
    error_ = std::move(launcher).error();
  if (config)
    config_ = std::move(*config);
  else
    error_ = std::move(config).error();
  user_.uid = input_.request.uid;
  user_.gid = input_.request.gid;
  user_.groups.assign(input_.request.groups.begin(), input_.request.groups.end());
}

void Broker::run() {
  start();
  while (!done_) poll_once();
}

void Broker::start() {
  const auto prepare = [&]() -> Result<void> {
    if (error_) return fail(*error_);
    // Who made the socket pair, in init_post_opt.
    TRY_ASSIGN(const PeerCredentials parent, peer_credentials(input_.control.get()));
    TRY_ASSIGN(slurmstepd_, open_file("/proc/" + std::to_string(parent.pid), O_PATH | O_DIRECTORY));
    TRY_ASSIGN(spec_, sealed_memory("situla-spec", input_.request.spec));
    TRY_ASSIGN(mounts_, ImageMounts::open(SITULA_RUNTIME_DIR));
    TRY(make_directories(kStageMount, 0755));
    // An image may not be needed if the container has a name: the builder will say so.
    const bool import_now = input_.request.origin == ImageOrigin::registry && !input_.request.named;
    return import_now ? begin_import() : Result<void>();
  };
  if (const auto prepared = prepare(); !prepared) return fail_step(prepared.error());
  // While the importer works; should it fail, the attempt that needs it says so.
  if (state_ == State::importing) (void)mapping_namespace();
}

void Broker::poll_once() {
  std::vector<pollfd> entries = {{input_.control.get(), POLLIN, 0}, {input_.listener.get(), POLLIN, 0}};
  entries.push_back({import_ ? import_->importer.socket.get() : -1, POLLIN, 0});
  entries.push_back({builder_ ? builder_->socket.get() : -1, POLLIN, 0});
  entries.push_back({import_ ? import_->request_writer.socket.get() : -1, POLLIN, 0});
  entries.push_back({running_ ? running_->listener() : -1, POLLIN, 0});
  entries.push_back({import_ ? import_->store.socket.get() : -1, POLLIN, 0});
  entries.push_back({ending_importer(), POLLIN, 0});
  const size_t first_client = entries.size();
  // What waits has said what it had to say; that stays where it is. Only its end (POLLHUP) is news.
  for (const Client& client : clients_)
    entries.push_back({client.socket.get(), static_cast<short>(client.waiting ? 0 : POLLIN), 0});
  const size_t first_stand_in = entries.size();
  for (const UniqueFd& stand_in : stand_ins_) entries.push_back({stand_in.get(), POLLIN, 0});

  const auto now = Clock::now();
  auto wake = deadline_.value_or(now + std::chrono::hours(1));
  for (const Client& client : clients_)
    wake = std::min(wake, client.waiting ? said_alive_ + kAliveEvery : client.connected + kJoinLimit);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(wake - now, Clock::duration::zero()));
  if (poll(entries.data(), entries.size(), static_cast<int>(wait.count())) < 0 && errno != EINTR) {
    syslog(LOG_ERR, "poll: %m");
    done_ = true;
    return;
  }
  // Clients first: the others may change the list.
  for (size_t i = first_stand_in; i < entries.size(); ++i)
    if (entries[i].revents != 0) on_stand_in(stand_ins_[i - first_stand_in]);
  for (size_t i = first_client; i < first_stand_in && !clients_.empty(); ++i)
    if (entries[i].revents != 0) on_client(clients_[i - first_client]);
  drop_lost_clients();
  // Before the importer: it would only say that its input ended.
  if (import_ && entries[4].revents != 0) on_request_writer();
  if (import_ && entries[2].revents != 0) on_importer();
  if (import_ && entries[6].revents != 0) on_store();
  if (import_ && entries[7].revents != 0) on_import_ended();
  if (builder_ && entries[3].revents != 0) on_builder();
  if (running_ && entries[5].revents != 0) on_running();
  if (entries[1].revents != 0) on_listener();
  if (entries[0].revents != 0) on_control();
  on_deadline();
  say_that_it_goes_on();
  build_if_possible();
}

/// A task cannot tell an import of hours from a broker that hangs.
void Broker::say_that_it_goes_on() {
  if (Clock::now() < said_alive_ + kAliveEvery) return;
  said_alive_ = Clock::now();
  for (const Client& client : clients_)
    if (client.waiting) (void)tell(client.socket.get(), Alive{});
}

// --- slurmstepd
// ----------------------------------------------------------------------------------------------------------

void Broker::on_control() {
  const auto bytes = receive_bytes(input_.control.get(), kMaxMessageBytes);
  if (bytes && *bytes) {
    const auto message = decode(**bytes);
    if (message && std::holds_alternative<StepPrepared>(*message) && state_ != State::failed)
      if (const auto prepared = step_prepared(); !prepared) fail_step(prepared.error());
    if (!message || !std::holds_alternative<Finish>(*message)) return;
    finish(true);
    (void)send_packet(input_.control.get(), encode(Finished{report_.text()}));
  } else {
    // slurmstepd is gone. Slurm itself would leave its tasks running.
    finish(false);
  }
  if (launcher_) {
    refresh_inventory(*launcher_, config_);
    launcher_->cgroups.remove_idle_shares();
  }
  done_ = true;
}

/// When slurmstepd says so, or a task asks. From then on what the user wrote and what strangers send may be read.
Result<void> Broker::step_prepared() {
  if (launcher_->cgroups.step_prepared()) return {};
  TRY_CONTEXT(phrase(RootOperation::move_to_cgroup), launcher_->cgroups.step_is_prepared(slurmstepd_.get()));
  return import_ && import_->request ? begin_request() : Result<void>();
}

/// No task can get in any more; who waits is told by the closing of its connection.
void Broker::let_nobody_in() {
  clients_.clear();
  input_.listener.reset();
  running_.reset();
  end_import();
}

void Broker::finish(bool orderly) {
  let_nobody_in();
  for (const Note& note : std::exchange(save_notes_, {})) (void)send_packet(input_.control.get(), encode(note));
  if (orderly && !save_begun_) (void)save(-1);
  if (!orderly) end_processes();
  container_.reset();
  container_environment_.reset();
  shared_environment_.reset();
  saved_.reset();
  save_image_.reset();
  end_builder(orderly);
  image_ = BuilderImage{};
  image_in_use_.reset();
  release_image();
  if (mounts_) mounts_->drop_idle(config_.image_mount_idle);
  if (launcher_) launcher_->cgroups.leave_step();
}

/// The task with --container-save: its program has ended, or it was killed. The last program's end begins the save, of
/// which its task has the exit status; should it be killed, the save begins with Finish.
void Broker::on_stand_in(UniqueFd& stand_in) {
  const UniqueFd socket = std::move(stand_in);
  const auto message = hear(socket.get());
  if (!message || !*message || !std::holds_alternative<TaskEnded>(**message)) return;
  Message answer = Finished{};
  if (++ended_ == input_.request.local_tasks) {
    let_nobody_in();
    if (const auto saved = save(socket.get()); !saved) answer = Failure{saved.error().kind(), "", ""};
  }
  (void)tell(socket.get(), answer);
}

void Broker::say_of_save(Note note, bool at_once) {
  note.text = as_one_line(note.text);
  if (at_once)
    (void)send_packet(input_.control.get(), encode(note));
  else if (save_notes_.size() < kMaxNotes)
    save_notes_.push_back(std::move(note));
}

/// --container-save, if all local tasks have got their container (COMPAT.md 1). `stand_in`: the last task, or -1 when
/// slurmstepd waits.
Result<void> Broker::save(int stand_in) {
  const StepRequest& request = input_.request;
  const bool slurmstepd_waits = stand_in < 0;
  if (!request.save || state_ != State::ready || granted_ < request.local_tasks || !place_) return {};
  save_begun_ = true;
  if (slurmstepd_waits) (void)send_packet(input_.control.get(), encode(Saving{place_->cgroups}));
  report_.begin("save");
  auto saved = run_saver(stand_in);
  report_.end();
  if (saved || saved.error().message().empty()) return saved;
  say_of_save({LogLevel::error, saved.error().message()}, slurmstepd_waits);
  if (!saved.error().hint().empty()) say_of_save({LogLevel::error, "hint: " + saved.error().hint()}, slurmstepd_waits);
  return saved;
}

/// Passes on what the saver says, until it ends. When the step is cancelled, so is the saver, and with it its file,
/// which has no name yet: the task that waits is killed, or slurmstepd says Finish once more, or goes away.
Result<void> Broker::run_saver(int stand_in) {
  SaverInput input{user_, *place_};
  input.spec_fd = spec_.get();
  input.environment_fd = input_.environment.get();
  input.files_fd = saved_.get();
  input.image_fd = save_image_.get();
  TRY_ASSIGN(Helper saver, start_saver(*launcher_, input));
  const int control = input_.control.get();
  for (;;) {
    std::array<pollfd, 3> entries = {{{saver.socket.get(), POLLIN, 0}, {control, POLLIN, 0}, {stand_in, POLLIN, 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return fail_errno(errno, "wait for the saver");
    if (entries[1].revents != 0 || entries[2].revents != 0) {
      // slurmstepd has said it itself.
      if (stand_in < 0) (void)receive_bytes(control, kMaxMessageBytes);
      return fail(ErrorKind::cancelled,
                  stand_in < 0 ? "" : "--container-save: the step was cancelled, nothing is saved");
    }
    if (entries[0].revents == 0) continue;
    const auto heard = hear(saver.socket.get());
    if (!heard && heard.error().kind() == ErrorKind::corrupt) return fail(heard.error());
    if (!heard || !*heard) break;
    // slurmstepd writes them to its log.
    if (const auto* text = std::get_if<Note>(&**heard))
      if (auto note = within_limit(*text)) say_of_save(std::move(*note), stand_in < 0);
    if (const auto* failure = std::get_if<Failure>(&**heard))
      return fail(Error(failure->kind, failure->text).with_hint(failure->hint));
  }
  const auto status = saver.process.wait_for(kEndLimit);
  if (status && *status && (*status)->success()) return {};
  return fail(ErrorKind::failure,
              "saving the container " + (status && *status ? (*status)->text() : std::string("does not end")));
}

/// Readable when a process of an import that has given its image has ended; -1: there is none.
int Broker::ending_importer() const {
  if (!import_ || import_->importer.socket || import_->store.socket) return -1;
  return (import_->importer.process ? import_->importer : import_->store).process.pidfd();
}

/// Nobody stays as a zombie while the step runs, and nobody is waited for who still runs.
void Broker::on_import_ended() {
  if (import_->importer.process && import_->store.process)
    (void)import_->importer.process.wait();
  else
    end_import();
}

/// The closed socket cancels an import that still runs: it unwinds by itself, or is killed and swept up after.
void Broker::end_import() {
  if (!import_) return;
  import_->importer.socket.reset();
  import_->store.socket.reset();
  import_->request_writer = Helper{};
  const auto ends = [](Helper& helper) {
    if (!helper.process) return false;
    const auto status = helper.process.wait_for(kUnwindLimit);
    return status && *status && (*status)->signal == 0;
  };
  (void)ends(import_->importer);  // what it wrote to has no name
  // One that ended before anybody told it to, and was reaped for it, has left what it held.
  const bool unwound = input_.request.origin == ImageOrigin::user || (import_->store.process && ends(import_->store));
  import_.reset();
  if (unwound) return;
  if (auto sweeper = start_store_sweeper(*launcher_, config_)) (void)sweeper->wait_for(kEndLimit);
}

/// Once for each step on the node, however it ends.
void Broker::release_image() {
  if (!release_) return;
  const UserImport import{user_, *place_, spec_.get(), input_.environment.get(),
                          *std::exchange(release_, std::nullopt)};
  if (const auto done = release_site_image(*launcher_, import); !done)
    syslog(LOG_WARNING, "job %u step %u: %s", input_.request.job_id, input_.request.step_id,
           as_one_line(done.error().message()).c_str());
}

/// What a builder that was killed had said of its scratch directory and was not read yet.
void Broker::hear_last_words() {
  pollfd more{builder_->socket.get(), POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN) != 0) {
    const auto heard = hear(builder_->socket.get());
    if (!heard || !*heard) return;
    if (const auto* place = std::get_if<ScratchPlace>(&**heard)) scratch_path_ = place->path;
  }
}

void Broker::end_builder(bool orderly) {
  bool left = !scratch_path_.empty();
  if (builder_) {
    if (orderly && builder_stays_) (void)tell(builder_->socket.get(), Finish{});
    // A builder that stays takes the end of the connection for the end of its work.
    if (builder_stays_)
      builder_->socket.reset();
    else
      (void)builder_->process.signal(SIGKILL);
    const auto status = builder_->process.wait_for(kEndLimit);
    if (!builder_stays_) hear_last_words();
    builder_.reset();
    const bool ended_itself = status && *status && (*status)->signal == 0;
    // One that failed before there was a container has removed what it had made, and another node may have the name
    // now.
    left = !scratch_path_.empty() && !(ended_itself && (!container_ || (*status)->success()));
    if (input_.request.named && !container_ && !ended_itself && place_)
      if (auto sweeper = start_unfinished_sweeper(*launcher_, user_, *place_, spec_.get(), input_.environment.get()))
        (void)sweeper->process.wait_for(kEndLimit);
  }
  // The builder was killed before it could remove what it had made on disk.
  if (left)
    if (auto cleaner = start_cleaner(*launcher_, user_, scratch_path_)) (void)cleaner->wait_for(kEndLimit);
  (void)unlink(step_scratch_path(input_.request.job_id, input_.request.step_id).c_str());
}

/// What the image's own scripts have started may outlive the builder that was killed; tasks outlive slurmstepd. In a
/// container that tasks of other steps share only this step's own tasks are ended.
void Broker::end_processes() {
  if (shared_ || !user_namespace_) {
    for (const UniqueFd& task : tasks_) (void)signal_pidfd(task.get(), SIGKILL);
    return;
  }
  if (const auto killed = kill_container(user_namespace_.get(), user_.uid); !killed)
    syslog(LOG_ERR, "%s: %s", phrase(RootOperation::kill_container).data(), killed.error().message().c_str());
}

// --- tasks
// -----------------------------------------------------------------------------------------------------------------

void Broker::on_listener() {
  auto socket = accept_from(input_.listener.get());
  if (!socket) return;
  const auto peer = peer_credentials(socket->get());
  if (!peer || peer->uid != user_.uid || clients_.size() >= kMaxClients) return;
  auto proc = open_file("/proc/" + std::to_string(peer->pid), O_PATH | O_DIRECTORY);
  // The number may be somebody else's by now.
  if (!proc || !belongs_to(proc->get(), user_.uid)) return;
  Client client;
  client.socket = std::move(*socket);
  if (auto pidfd = open_pidfd(peer->pid); pidfd && belongs_to(proc->get(), user_.uid)) client.pidfd = std::move(*pidfd);
  client.proc = std::move(*proc);
  client.connected = Clock::now();
  clients_.push_back(std::move(client));
}

void Broker::on_client(Client& client) {
  const auto bytes = client.waiting ? fail(ErrorKind::cancelled, "it has ended")
                                    : receive_bytes(client.socket.get(), kMaxMessageBytes, Leave::there);
  const auto message = bytes && *bytes ? decode(**bytes) : fail(ErrorKind::cancelled, "closed");
  const Join* join = message ? std::get_if<Join>(&*message) : nullptr;
  if (join == nullptr || !same_token(join->token, input_.request.token)) {
    client.socket.reset();
    return;
  }
  client.directory = join->directory;
  client.waiting = true;
  asked_ = true;
  // Also when the import failed before the first task asked.
  for (const Note& note : std::exchange(notes_, {})) (void)tell(client.socket.get(), note);
  if (state_ == State::failed) return refuse(client);
  if (state_ == State::ready) return grant(client);
}

void Broker::drop_lost_clients() {
  std::erase_if(stand_ins_, [](const UniqueFd& stand_in) { return !stand_in; });
  const auto too_old = Clock::now() - kJoinLimit;
  std::erase_if(clients_, [&](const Client& client) {
    return !client.socket || (!client.waiting && client.connected < too_old);
  });
  const bool working = state_ == State::importing || state_ == State::building;
  const bool waited_for =
      std::any_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.waiting; });
  // The tasks were cancelled while they waited: nobody needs the image or the container any more.
  if (working && asked_ && !waited_for) fail_step(Error(ErrorKind::cancelled, "the step was cancelled"));
}

/// What lies in the socket still, unread, would be taken for a connection that broke.
void Broker::answer(Client& client, const Message& message, const std::vector<int>& fds) {
  constexpr int kMaxLeft = 16;  // one, of a task of ours
  for (int left = 0; left < kMaxLeft; ++left)
    if (const auto bytes = receive_bytes(client.socket.get(), kMaxMessageBytes); !bytes || !*bytes) break;
  (void)tell(client.socket.get(), message, fds);
}

void Broker::grant(Client& client) {
  std::vector<int> fds = container_->numbers();
  fds.push_back(container_environment_.get());
  answer(client, Joined{workdir_, container_->isolation}, fds);
  if (input_.request.save) stand_ins_.push_back(std::move(client.socket));
  client.socket.reset();
  if (client.pidfd) tasks_.push_back(std::move(client.pidfd));
  ++granted_;
}

/// The broker of another step of the same user: nobody else can enter the socket's directory.
void Broker::on_running() {
  const auto connection = accept_from(running_->listener());
  if (!connection) return;
  const auto peer = peer_credentials(connection->get());
  if (!peer || peer->uid != 0) return;
  std::vector<int> fds = container_->numbers();
  fds.push_back(shared_environment_.get());
  if (running_->directory()) fds.push_back(running_->directory().get());
  shared_ = tell(connection->get(), Joined{workdir_, container_->isolation}, fds) || shared_;
}

void Broker::refuse(Client& client) {
  Failure failure{error_->kind(), "", ""};
  if (!std::exchange(reported_, true)) {
    failure.text = error_->message();
    failure.hint = error_->hint();
  }
  answer(client, failure);
  client.socket.reset();
}

/// What a task or slurmstepd is told they write into the node's log as well, and a user can speak for his helpers.
std::optional<Note> Broker::within_limit(const Note& note) {
  constexpr size_t kLineBytes = 64;  // what the log puts before it
  if (said_ > kMaxSaid) return std::nullopt;
  said_ += note.text.size() + kLineBytes;
  if (said_ <= kMaxSaid) return note;
  return Note{LogLevel::warning, "more messages of this step are not shown"};
}

void Broker::note(const Note& heard) {
  const auto within = within_limit(heard);
  if (!within) return;
  const Note& note = *within;
  // One task of the node tells the user; before any has asked, the first to come.
  const auto first =
      std::find_if(clients_.begin(), clients_.end(), [](const Client& client) { return client.waiting; });
  if (first != clients_.end())
    (void)tell(first->socket.get(), note);
  else if (notes_.size() < kMaxNotes)
    notes_.push_back(note);
}

/// Only steps of one task have a terminal.
void Broker::draw(const Draw& drawing) {
  for (const Client& client : clients_)
    if (client.waiting) (void)tell(client.socket.get(), drawing);
}

void Broker::fail_step(const Error& error) {
  syslog(LOG_INFO, "job %u step %u: %s", input_.request.job_id, input_.request.step_id,
         as_one_line(error.message()).c_str());
  state_ = State::failed;
  error_ = error;
  deadline_.reset();
  for (Client& client : clients_)
    if (client.waiting) refuse(client);
  std::erase_if(clients_, [](const Client& client) { return !client.socket; });
  end_import();
  end_builder(false);
  end_processes();
  release_image();
}

void Broker::on_deadline() {
  if (!deadline_ || Clock::now() < *deadline_) return;
  if (state_ == State::importing)
    fail_step(
        Error(ErrorKind::failure,
              "importing the image took longer than " + std::to_string(config_.import_timeout.count()) + " s")
            .with_hint("raise import_timeout in " SITULA_SYSCONF_DIR "/situla.toml, or import it once beforehand"));
  else if (state_ == State::building)
    fail_step(Error(ErrorKind::failure,
                    "preparing the container took longer than " + std::to_string(config_.build_timeout.count()) + " s")
                  .with_hint("a hook or the image's /etc/rc may hang; build_timeout is in " SITULA_SYSCONF_DIR
                             "/situla.toml"));
}

}  // namespace situla
