#include "plugin/broker/broker.hpp"

#include <algorithm>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <syslog.h>

#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kJoinLimit{10};   // from connect() to the token
constexpr std::chrono::seconds kEndLimit{5};     // for a helper to end by itself
constexpr std::chrono::seconds kUnwindLimit{1};  // for a cancelled import to remove what it made
constexpr size_t kMaxClients = 4096;
constexpr size_t kMaxNotes = 64;

bool same_token(const StepToken& a, const StepToken& b) {
  unsigned difference = 0;  // every byte is looked at, so that time tells nothing
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a.at(i) ^ b.at(i));
  return difference == 0;
}

bool is_variant(const std::string& text) {
  return text.size() <= 32 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

Error ended_early(const char* who, Child& process) {
  const auto status = process.wait_for(std::chrono::milliseconds(1000));
  const std::string how = status && *status ? (*status)->text() : "closed its connection";
  return Error(ErrorKind::failure, std::string(who) + " " + how).with_hint("the node's system log may say more");
}

}  // namespace

Broker::Broker(BrokerInput input, Result<SiteConfig> config) : input_(std::move(input)) {
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
    TRY_ASSIGN(spec_, sealed_memory("situla-spec", input_.request.spec));
    TRY_ASSIGN(mounts_, ImageMounts::open(SITULA_RUNTIME_DIR));
    TRY(make_directories(kStageMount, 0755));
    return input_.request.origin == ImageOrigin::registry ? begin_import() : Result<void>();
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
  const size_t first_client = entries.size();
  for (const Client& client : clients_) entries.push_back({client.socket.get(), POLLIN, 0});

  const auto now = Clock::now();
  auto wake = deadline_.value_or(now + std::chrono::hours(1));
  for (const Client& client : clients_)
    if (!client.waiting) wake = std::min(wake, client.connected + kJoinLimit);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(wake - now, Clock::duration::zero()));
  if (poll(entries.data(), entries.size(), static_cast<int>(wait.count())) < 0 && errno != EINTR) {
    syslog(LOG_ERR, "poll: %m");
    done_ = true;
    return;
  }
  // Clients first: the others may change the list.
  for (size_t i = first_client; i < entries.size(); ++i)
    if (entries[i].revents != 0) on_client(clients_[i - first_client]);
  drop_lost_clients();
  // Before the importer: it would only say that its input ended.
  if (import_ && entries[4].revents != 0) on_request_writer();
  if (import_ && entries[2].revents != 0) on_importer();
  if (builder_ && entries[3].revents != 0) on_builder();
  if (entries[1].revents != 0) on_listener();
  if (entries[0].revents != 0) on_control();
  on_deadline();
  build_if_possible();
}

// --- slurmstepd
// ----------------------------------------------------------------------------------------------------------

void Broker::on_control() {
  auto packet = receive_packet(input_.control.get(), kMaxMessageBytes);
  if (packet && *packet) {
    const auto message = decode((*packet)->bytes);
    if (!message || !std::holds_alternative<Finish>(*message)) return;
    finish(true);
    (void)send_packet(input_.control.get(), encode(Finished{}));
  } else {
    // slurmstepd is gone. Slurm itself would leave its tasks running.
    finish(false);
  }
  done_ = true;
}

void Broker::finish(bool orderly) {
  // No task can get in any more; who waits is told by the closing of its connection.
  clients_.clear();
  input_.listener.reset();
  end_import();
  if (!orderly) end_processes();
  container_.reset();
  container_environment_.reset();
  end_builder(orderly);
  image_ = BuilderImage{};
  image_in_use_.reset();
  if (mounts_) mounts_->drop_idle(config_.image_mount_idle);
}

/// The closed socket cancels an import that still runs: it unwinds by itself, or is killed and swept up after.
void Broker::end_import() {
  if (!import_) return;
  import_->importer.socket.reset();
  import_->request_writer = Helper{};
  const auto status = import_->importer.process.wait_for(kUnwindLimit);
  const bool unwound = status && *status && (*status)->signal == 0;
  import_.reset();
  // The file of a user's import has no name.
  if (unwound || input_.request.origin == ImageOrigin::user) return;
  if (auto sweeper = start_store_sweeper(config_)) (void)sweeper->wait_for(kEndLimit);
}

void Broker::end_builder(bool orderly) {
  bool clean = !scratch_path_.empty();
  if (builder_) {
    if (orderly && builder_stays_) (void)send_packet(builder_->socket.get(), encode(Finish{}));
    builder_->socket.reset();
    if (!builder_stays_) (void)builder_->process.signal(SIGKILL);
    const auto status = builder_->process.wait_for(kEndLimit);
    if (status && *status && (*status)->success()) clean = false;
    builder_.reset();
  }
  if (!clean) return;
  // The builder was killed before it could remove what it had made on disk.
  if (auto cleaner = start_cleaner(user_, scratch_path_)) (void)cleaner->wait_for(kEndLimit);
}

/// What the image's own scripts have started may outlive the builder that was killed; tasks outlive slurmstepd.
void Broker::end_processes() {
  if (!user_namespace_) return;
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
  if (!proc) return;
  Client client;
  client.socket = std::move(*socket);
  client.proc = std::move(*proc);
  client.connected = Clock::now();
  clients_.push_back(std::move(client));
}

void Broker::on_client(Client& client) {
  auto packet = receive_packet(client.socket.get(), kMaxMessageBytes);
  const auto message = packet && *packet ? decode((*packet)->bytes) : fail(ErrorKind::cancelled, "closed");
  const Join* join = message ? std::get_if<Join>(&*message) : nullptr;
  const size_t wanted = input_.request.origin == ImageOrigin::file ? 2 : 1;
  if (join == nullptr || client.waiting || !same_token(join->token, input_.request.token) ||
      (*packet)->fds.size() != wanted) {
    client.socket.reset();
    return;
  }
  client.environment = std::move((*packet)->fds[0]);
  if (wanted == 2) client.image = std::move((*packet)->fds[1]);
  client.directory = join->directory;
  client.waiting = true;
  asked_ = true;
  if (state_ == State::failed) return refuse(client);
  if (state_ == State::ready) return grant(client);
  for (const Note& note : std::exchange(notes_, {})) (void)send_packet(client.socket.get(), encode(note));
}

void Broker::drop_lost_clients() {
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

void Broker::grant(Client& client) {
  (void)send_packet(
      client.socket.get(), encode(Joined{workdir_}),
      {container_->user.get(), container_->mount.get(), container_->cgroup.get(), container_environment_.get()});
  client.socket.reset();
}

void Broker::refuse(Client& client) {
  Failure failure{error_->kind(), "", ""};
  if (!std::exchange(reported_, true)) {
    failure.text = error_->message();
    failure.hint = error_->hint();
  }
  (void)send_packet(client.socket.get(), encode(failure));
  client.socket.reset();
}

void Broker::note(const Note& note) {
  // One task of the node tells the user; before any has asked, the first to come.
  const auto first =
      std::find_if(clients_.begin(), clients_.end(), [](const Client& client) { return client.waiting; });
  if (first != clients_.end())
    (void)send_packet(first->socket.get(), encode(note));
  else if (notes_.size() < kMaxNotes)
    notes_.push_back(note);
}

/// Only steps of one task have a terminal.
void Broker::draw(const Draw& drawing) {
  for (const Client& client : clients_)
    if (client.waiting) (void)send_packet(client.socket.get(), encode(drawing));
}

void Broker::fail_step(const Error& error) {
  syslog(LOG_INFO, "job %u step %u: %s", input_.request.job_id, input_.request.step_id, error.message().c_str());
  state_ = State::failed;
  error_ = error;
  deadline_.reset();
  for (Client& client : clients_)
    if (client.waiting) refuse(client);
  std::erase_if(clients_, [](const Client& client) { return !client.socket; });
  end_import();
  end_builder(false);
  end_processes();
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

// --- image
// -----------------------------------------------------------------------------------------------------------------

Result<void> Broker::begin_import() {
  auto helpers = start_import(config_, user_, spec_.get(), input_.environment.get());
  if (!helpers) return fail(std::move(helpers).error().with_context(phrase(RootOperation::start_importer)));
  import_ = std::move(*helpers);
  state_ = State::importing;
  set_deadline(config_.import_timeout);
  return {};
}

/// When a task has asked, because relative paths begin in its directory.
Result<void> Broker::begin_user_import(const Client& client) {
  UserImport input;
  input.user = user_;
  input.directory = client.directory;
  input.task_proc = client.proc.get();
  input.spec_fd = spec_.get();
  input.environment_fd = input_.environment.get();
  auto helper = start_user_import(input);
  if (!helper) return fail(std::move(helper).error().with_context(phrase(RootOperation::start_as_user)));
  import_ = ImportHelpers{std::move(*helper), Helper{}};
  state_ = State::importing;
  set_deadline(config_.import_timeout);
  return {};
}

void Broker::on_importer() {
  auto packet = receive_packet(import_->importer.socket.get(), kMaxMessageBytes);
  if (!packet || !*packet) return fail_step(ended_early("the importer", import_->importer.process));
  const auto message = decode((*packet)->bytes);
  if (!message) return fail_step(message.error());
  if (const auto* text = std::get_if<Note>(&*message)) return note(*text);
  if (const auto* drawing = std::get_if<Draw>(&*message)) return draw(*drawing);
  if (const auto* failure = std::get_if<Failure>(&*message))
    return fail_step(Error(failure->kind, failure->text).with_hint(failure->hint));
  const auto* done = std::get_if<ImportDone>(&*message);
  if (done == nullptr) return fail_step(Error(ErrorKind::corrupt, "the importer sent a message out of turn"));
  if (const auto used = use_imported(*done, std::move((*packet)->fds)); !used) return fail_step(used.error());
}

void Broker::on_request_writer() {
  auto packet = receive_packet(import_->request_writer.socket.get(), kMaxMessageBytes);
  if (!packet || !*packet) {
    const auto status = import_->request_writer.process.wait_for(kEndLimit);
    import_->request_writer.socket.reset();
    if (status && *status && (*status)->success()) return;
    return fail_step(Error(ErrorKind::failure, "collecting the credentials " +
                                                   (status && *status ? (*status)->text() : std::string("hangs"))));
  }
  const auto message = decode((*packet)->bytes);
  if (!message) return fail_step(message.error());
  if (const auto* text = std::get_if<Note>(&*message)) return note(*text);
  if (const auto* failure = std::get_if<Failure>(&*message))
    fail_step(Error(failure->kind, failure->text).with_hint(failure->hint));
}

Result<void> Broker::use_imported(const ImportDone& done, std::vector<UniqueFd> fds) {
  if (input_.request.origin == ImageOrigin::user) {
    if (fds.size() != 1) return fail(ErrorKind::corrupt, "the import sent no image");
    // The user's own file from here on, like one that a task brings.
    TRY_ASSIGN(image_, make_image(std::move(fds[0]), ""));
    import_->importer.socket.reset();
    deadline_.reset();
    state_ = State::needs_task;
    return {};
  }
  if (!is_variant(done.variant)) return fail(ErrorKind::corrupt, "the importer named an image variant that cannot be");
  auto file = open_store_image(config_.store_path, done.digest, done.variant, config_.service_user);
  if (!file) return fail(std::move(file).error().with_context(phrase(RootOperation::open_store_image)));
  TRY_ASSIGN(image_,
             make_image(std::move(*file), done.digest.hex() + (done.variant.empty() ? "" : "." + done.variant)));
  import_->importer.socket.reset();  // it gives up its lease and ends; reaped at the end
  deadline_.reset();
  state_ = State::needs_task;
  return {};
}

Result<BuilderImage> Broker::make_image(UniqueFd file, const std::string& store_name) {
  const MountKind kind = input_.request.use_squashfuse ? MountKind::fuse : config_.mount;
  const bool may_mount = !store_name.empty() || config_.kernel_mount_user_images;
  if (may_mount && (kind == MountKind::automatic || kind == MountKind::kernel)) {
    auto image = mount_for_user(file.get(), store_name);
    if (image) return image;
    if (kind == MountKind::kernel) return image;
    syslog(LOG_NOTICE, "falling back to FUSE or extraction: %s", image.error().message().c_str());
  }
  BuilderImage image;
  image.file = std::move(file);
  image.mode = kind == MountKind::fuse ? "image-fuse" : kind == MountKind::extract ? "image-extract" : "image-auto";
  return image;
}

Result<int> Broker::mapping_namespace() {
  if (!mapping_) {
    TRY_ASSIGN(mapping_, make_mapping_namespace(user_.uid, user_.gid));
  }
  return mapping_.get();
}

Result<BuilderImage> Broker::mount_for_user(int file, const std::string& store_name) {
  BuilderImage image;
  image.mode = "mounted";
  const auto mount = [&]() -> Result<DetachedMount> {
    if (store_name.empty()) return mount_image_file(file);
    TRY_ASSIGN(image_in_use_, mounts_->acquire(store_name, file));
    return clone_tree(image_in_use_->mount.get(), false);
  };
  auto mounted = mount();
  if (!mounted) return fail(std::move(mounted).error().with_context(phrase(RootOperation::mount_image)));
  const auto map = [&]() -> Result<void> {
    TRY_ASSIGN(const int mapping, mapping_namespace());
    return mounted->map_ids(mapping);
  };
  TRY_CONTEXT(phrase(RootOperation::map_image_owner), map());
  image.mount = mounted->take();
  return image;
}

// --- container
// -------------------------------------------------------------------------------------------------------------

void Broker::build_if_possible() {
  if (state_ != State::needs_task) return;
  const auto first =
      std::find_if(clients_.begin(), clients_.end(), [](const Client& client) { return client.waiting; });
  if (first == clients_.end()) return;
  const bool import_first = input_.request.origin == ImageOrigin::user && !image_.file && !image_.mount;
  const auto begun = import_first ? begin_user_import(*first) : begin_build(*first);
  if (!begun) fail_step(begun.error());
}

Result<void> Broker::begin_build(Client& client) {
  if (input_.request.origin == ImageOrigin::file) {
    TRY_ASSIGN(image_, make_image(std::move(client.image), ""));
  }
  BuilderInput input;
  input.user = user_;
  input.scratch_name = "pyxis_" + std::to_string(input_.request.job_id) + "." + std::to_string(input_.request.step_id);
  input.directory = client.directory;
  input.task_proc = std::move(client.proc);
  input.tmpfs_bytes = config_.root_tmpfs_bytes;
  input.spec_fd = spec_.get();
  input.environment_fd = client.environment.get();
  TRY_ASSIGN(builder_, start_builder(input, image_));
  client.environment.reset();
  state_ = State::building;
  set_deadline(config_.build_timeout);
  return {};
}

void Broker::on_builder() {
  auto packet = receive_packet(builder_->socket.get(), kMaxMessageBytes);
  if (!packet || !*packet) {
    if (state_ == State::building) return fail_step(ended_early("the container's builder", builder_->process));
    // Ready, and not needed any more; or killed although it was to stay: then its scratch is removed at the end.
    builder_->socket.reset();
    return;
  }
  if (const auto handled = on_builder_message(std::move(**packet)); !handled) fail_step(handled.error());
}

Result<void> Broker::on_builder_message(Packet packet) {
  TRY_ASSIGN(const Message message, decode(packet.bytes));
  if (const auto* text = std::get_if<Note>(&message)) {
    note(*text);
    return {};
  }
  if (const auto* failure = std::get_if<Failure>(&message))
    return fail(Error(failure->kind, failure->text).with_hint(failure->hint));
  if (state_ != State::building) return {};
  if (const auto* wanted = std::get_if<MapsWanted>(&message)) {
    TRY_ASSIGN(user_namespace_, open_user_namespace(builder_->process.pid(), user_.uid));
    const std::string path = "/proc/" + std::to_string(builder_->process.pid());
    TRY_ASSIGN(const UniqueFd proc, open_file(path, O_PATH | O_DIRECTORY));
    TRY_CONTEXT(phrase(RootOperation::write_id_maps),
                write_id_maps(proc.get(), wanted->remap_root ? 0 : user_.uid, user_.uid,
                              wanted->remap_root ? 0 : user_.gid, user_.gid));
    return send_packet(builder_->socket.get(), encode(MapsWritten{}));
  }
  if (const auto* ready = std::get_if<Ready>(&message)) return accept_container(*ready, std::move(packet.fds));
  return fail(ErrorKind::corrupt, "the builder sent a message out of turn");
}

Result<void> Broker::accept_container(const Ready& ready, std::vector<UniqueFd> fds) {
  if (fds.size() != 1) return fail(ErrorKind::corrupt, "the builder sent no environment");
  scratch_path_ = ready.scratch_path;
  builder_stays_ = ready.stays;
  auto container = open_container_namespaces(builder_->process.pid(), user_.uid);
  if (!container) return fail(std::move(container).error().with_context(phrase(RootOperation::hand_out_namespaces)));
  container_ = std::move(*container);
  container_environment_ = std::move(fds[0]);
  workdir_ = ready.workdir;
  state_ = State::ready;
  deadline_.reset();
  image_ = BuilderImage{};  // the container's own mount keeps the image now
  if (!builder_stays_) (void)send_packet(builder_->socket.get(), encode(Finish{}));
  for (Client& client : clients_)
    if (client.waiting) grant(client);
  std::erase_if(clients_, [](const Client& client) { return !client.socket; });
  return {};
}

}  // namespace situla
