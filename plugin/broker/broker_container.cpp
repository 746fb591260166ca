// The second half of Broker: how the image and the container come to be, in the order in which it happens.
#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <syslog.h>

#include "common/base/text.hpp"
#include "common/sys/cgroup.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/broker.hpp"
#include "plugin/broker/contract.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kAttachLimit{3000};  // for the brokers of other steps to answer

/// It names a directory below <runtime>/images.
bool is_store_name(const std::string& text) {
  return !text.empty() && text.size() < 200 && text.front() != '.' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

Error ended_early(const char* who, Child& process) {
  const auto status = process.wait_for(std::chrono::milliseconds(1000));
  const std::string how = status && *status ? (*status)->text() : "closed its connection";
  return Error(ErrorKind::failure, std::string(who) + " " + how).with_hint("the node's system log may say more");
}

}  // namespace

// --- image
// -----------------------------------------------------------------------------------------------------------------

/// COMPAT.md 1, "Messages that people grep": the first only for a single task.
void Broker::announce_import() {
  if (input_.request.all_tasks <= 1) note({LogLevel::info, "importing docker image: " + input_.request.image});
  report_.begin("import");
}

Result<void> Broker::begin_import() {
  announce_import();
  const StepRequest& step = input_.request;
  auto helpers =
      start_import(*launcher_, config_, {user_.uid, std::to_string(step.job_id) + "." + std::to_string(step.step_id)});
  if (!helpers) return fail(std::move(helpers).error().with_context(phrase(RootOperation::start_importer)));
  import_ = std::move(*helpers);
  state_ = State::importing;
  set_deadline(config_.import_timeout);
  return launcher_->cgroups.step_prepared() ? begin_request() : Result<void>();
}

/// The importer has its input from here on, and what reads and writes it lives in the job.
Result<void> Broker::begin_request() {
  auto begun = start_request_writer(*launcher_, user_, spec_.get(), input_.environment.get(), *import_);
  if (!begun) return fail(std::move(begun).error().with_context(phrase(RootOperation::start_as_user)));
  return {};
}

/// When a task has asked, because relative paths begin in its directory.
Result<void> Broker::begin_user_import() {
  announce_import();
  UserImport input{user_, *place_};
  input.spec_fd = spec_.get();
  input.environment_fd = input_.environment.get();
  if (const StepRequest& step = input_.request; !step.importer.empty()) {
    const std::string runtime = step.importer_runtime.empty() ? SITULA_RUNTIME_DIR "/importer" : step.importer_runtime;
    input.site = {step.importer, runtime, step.job_id, step.step_id};
    release_ = input.site;
  }
  auto helpers = start_user_import(*launcher_, input);
  if (!helpers) return fail(std::move(helpers).error().with_context(phrase(RootOperation::start_as_user)));
  import_ = std::move(*helpers);
  state_ = State::importing;
  set_deadline(config_.import_timeout);
  return {};
}

void Broker::on_importer() {
  auto heard = hear(import_->importer.socket.get());
  if (!heard && heard.error().kind() == ErrorKind::corrupt) return fail_step(heard.error());
  if (!heard || !*heard) {
    if (!import_->store.socket) return fail_step(ended_early("the importer", import_->importer.process));
    import_->importer.socket.reset();  // the store program says what became of it
    return;
  }
  const Message& message = **heard;
  if (const auto* text = std::get_if<Note>(&message)) return note(*text);
  if (const auto* drawing = std::get_if<Draw>(&message)) return draw(*drawing);
  if (const auto* failure = std::get_if<Failure>(&message))
    return fail_step(Error(failure->kind, failure->text).with_hint(failure->hint));
  const auto* done = std::get_if<ImportDone>(&message);
  // Of an import into the store only the store program may say that.
  if (done == nullptr || input_.request.origin == ImageOrigin::registry)
    return fail_step(Error(ErrorKind::corrupt, "the importer sent a message out of turn"));
  if (const auto used = use_imported(*done, {}); !used) return fail_step(used.error());
}

void Broker::on_store() {
  auto heard = hear_store(import_->store.socket.get());
  if (!heard && heard.error().kind() == ErrorKind::corrupt) return fail_step(heard.error());
  if (!heard || !*heard) {
    // What the importer said last is why.
    while (import_ && import_->importer.socket) {
      pollfd last{import_->importer.socket.get(), POLLIN, 0};
      if (poll(&last, 1, 0) != 1) break;
      on_importer();
    }
    if (!import_) return;
    // An importer whose store program was killed ends by itself, and without a word.
    const auto importer = import_->importer.process.wait_for(std::chrono::milliseconds(1000));
    if (importer && *importer && (*importer)->signal != 0)
      return fail_step(Error(ErrorKind::failure, "the importer " + (*importer)->text())
                           .with_hint("the node's system log may say more"));
    return fail_step(ended_early("the store program", import_->store.process));
  }
  const Message& message = (*heard)->message;
  if (const auto* text = std::get_if<Note>(&message)) return note(*text);
  if (const auto* failure = std::get_if<Failure>(&message))
    return fail_step(Error(failure->kind, failure->text).with_hint(failure->hint));
  const auto* done = std::get_if<ImportDone>(&message);
  if (done == nullptr) return fail_step(Error(ErrorKind::corrupt, "the store program sent a message out of turn"));
  if (const auto used = use_imported(*done, std::move((*heard)->fds)); !used) return fail_step(used.error());
}

void Broker::on_request_writer() {
  const auto heard = hear(import_->request_writer.socket.get());
  if (!heard && heard.error().kind() == ErrorKind::corrupt) return fail_step(heard.error());
  if (!heard || !*heard) {
    const auto status = import_->request_writer.process.wait_for(kEndLimit);
    import_->request_writer.socket.reset();
    if (status && *status && (*status)->success()) return;
    return fail_step(Error(ErrorKind::failure, "collecting the credentials " +
                                                   (status && *status ? (*status)->text() : std::string("hangs"))));
  }
  const Message& message = **heard;
  if (const auto* text = std::get_if<Note>(&message)) return note(*text);
  if (const auto* failure = std::get_if<Failure>(&message))
    fail_step(Error(failure->kind, failure->text).with_hint(failure->hint));
}

Result<void> Broker::use_imported(const ImportDone& done, std::vector<UniqueFd> fds) {
  report_.end();
  // What a cluster's own program gets has none that we know.
  if (done.digest != Digest{}) report_.set_digest(done.digest.text());
  note({LogLevel::info, "imported docker image: " + input_.request.image});
  if (input_.request.origin == ImageOrigin::user) {
    report_.set_source(input_.request.importer.empty() ? "user" : "importer");
    return take_image(std::move(import_->parcel), "");
  }
  report_.set_source(done.stored ? "store" : "registry");
  if (fds.size() != 1 || !is_store_name(done.store_name))
    return fail(ErrorKind::corrupt, "the store program sent no image, or named one that cannot be");
  TRY_CONTEXT(phrase(RootOperation::accept_store_image), check_store_image(fds[0].get(), config_.service_user));
  return take_image(std::move(fds[0]), done.store_name);
}

/// store_name: empty for a user's own file, which lies in a parcel.
Result<void> Broker::take_image(UniqueFd file, const std::string& store_name) {
  import_->importer.socket.reset();  // they end by themselves: on_import_ended()
  import_->store.socket.reset();
  deadline_.reset();
  if (input_.request.named) {
    // Its container gets a copy.
    set_deadline(config_.build_timeout);
    state_ = State::building;
    report_.begin("prepare");
    return tell(builder_->socket.get(), ImageReady{}, {file.get()});
  }
  TRY_ASSIGN(image_, make_image(file.get(), store_name));
  if (!image_.mount) image_.file = std::move(file);
  state_ = State::needs_task;
  return {};
}

/// `file`: of the store; without a name there, the socket in which a user's file lies.
Result<BuilderImage> Broker::make_image(int file, const std::string& store_name) {
  const MountKind kind = input_.request.use_squashfuse ? MountKind::fuse : config_.mount;
  const bool may_mount = !store_name.empty() || config_.kernel_mount_user_images;
  if (may_mount && (kind == MountKind::automatic || kind == MountKind::kernel)) {
    auto image = mount_for_user(file, store_name);
    if (image) return image;
    if (kind == MountKind::kernel) return image;
    syslog(LOG_NOTICE, "falling back to FUSE or extraction: %s", image.error().message().c_str());
  }
  BuilderImage image;
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
  UniqueFd taken;
  if (store_name.empty()) {
    TRY_ASSIGN(taken, take_user_image(*launcher_, user_, file));
    file = taken.get();
  }
  const MountShare share{user_.uid, config_.mounts_per_user};
  const auto mount = [&]() -> Result<DetachedMount> {
    if (store_name.empty()) return mount_image_file(file, share);
    TRY_ASSIGN(image_in_use_, mounts_->acquire(store_name, file, share));
    return clone_tree(image_in_use_->mount.get(), false);
  };
  auto mounted = mount();
  if (!mounted) return fail(std::move(mounted).error().with_context(phrase(RootOperation::mount_image)));
  const auto map = [&]() -> Result<void> {
    TRY_ASSIGN(const int mapping, mapping_namespace());
    return mounted->map_ids(mapping);
  };
  TRY_CONTEXT(phrase(RootOperation::map_image_owner), map());
  if (input_.request.save) {
    TRY_ASSIGN(save_image_, duplicate_fd(file, "the image"));
  }
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
  const auto begin = [&]() -> Result<void> {
    TRY(step_prepared());
    if (!place_) {
      TRY_ASSIGN(place_, TaskPlace::of(launcher_->cgroups, first->proc.get(), first->directory));
    }
    const StepRequest& request = input_.request;
    const bool import_first = request.origin == ImageOrigin::user && !request.named && !image_.file && !image_.mount;
    return import_first ? begin_user_import() : begin_build(*first);
  };
  if (const auto begun = begin(); !begun) fail_step(begun.error());
}

namespace {

/// For the epilog: a file of root's own, unless an earlier step of the job has left it.
Result<void> keep_for_epilog(const std::string& path, std::string_view bytes) {
  TRY(make_directories(kJobsDirectory, 0700));
  auto file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (!file && file.error().errnum() == EEXIST) return {};
  if (!file) return fail(std::move(file).error());
  return write_all(file->get(), bytes);
}

}  // namespace

/// RootOperation::keep_environment.
void Broker::keep_environment() const {
  constexpr size_t kMaxBytes = size_t{4} << 20U;  // in /run, and so in memory
  const auto bytes = read_sealed_memory(input_.environment.get(), kMaxBytes);
  const auto kept = bytes ? keep_for_epilog(job_environment_path(input_.request.job_id), *bytes) : fail(bytes.error());
  if (!kept)
    syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_environment).data(), kept.error().message().c_str());
}

/// RootOperation::end_job: what serves a named container outlives its step, and no step ends it.
void Broker::keep_cgroups() const {
  const auto cgroups = launcher_->cgroups.job();
  if (!cgroups || !launcher_->cgroups.used()) return;
  if (const auto kept = keep_for_epilog(job_cgroups_path(input_.request.job_id), cgroups->text()); !kept)
    syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::end_job).data(), kept.error().message().c_str());
}

/// RootOperation::keep_scratch.
void Broker::keep_scratch() const {
  if (scratch_path_.empty()) return;
  const StepRequest& step = input_.request;
  const auto kept =
      keep_for_epilog(step_scratch_path(step.job_id, step.step_id), std::to_string(user_.uid) + "\n" + scratch_path_);
  if (!kept) syslog(LOG_WARNING, "%s: %s", phrase(RootOperation::keep_scratch).data(), kept.error().message().c_str());
}

Result<void> Broker::begin_build(Client& client) {
  const StepRequest& request = input_.request;
  if (request.named) {
    image_.mode = "named";
    report_.set_source("container");
    if (request.job_scope) keep_environment();
    keep_cgroups();
  } else if (request.origin == ImageOrigin::file) {
    report_.set_source("file");
    TRY_ASSIGN(image_, make_image(client.socket.get(), ""));
  }
  report_.begin("prepare");
  BuilderInput input{user_, *place_};
  input.outlives_step = request.named;
  input.scratch_name = "pyxis_" + std::to_string(request.job_id) + "." + std::to_string(request.step_id);
  input.tmpfs_bytes = config_.root_tmpfs_bytes;
  input.spec_fd = spec_.get();
  input.task_fd = client.socket.get();
  TRY_ASSIGN(container_environment_, memory_file("situla-environment"));
  TRY_ASSIGN(shared_environment_, memory_file("situla-environment"));
  input.for_tasks_fd = container_environment_.get();
  input.for_others_fd = shared_environment_.get();
  Parcel saved;
  if (request.save) {
    TRY_ASSIGN(saved, make_parcel());
  }
  input.saved_fd = saved.in.get();
  TRY_ASSIGN(builder_, start_builder(*launcher_, input, image_));
  saved_ = std::move(saved.out);
  state_ = State::building;
  set_deadline(config_.build_timeout);
  return {};
}

void Broker::on_builder() {
  auto heard = hear(builder_->socket.get());
  const bool malformed = !heard && heard.error().kind() == ErrorKind::corrupt;
  if (!malformed && (!heard || !*heard)) {
    // A builder of a named container waits for its image.
    const bool needed = state_ == State::building || state_ == State::importing;
    if (needed) return fail_step(ended_early("the container's builder", builder_->process));
    // Ready, and not needed any more; or killed although it was to stay: then its scratch is removed at the end.
    builder_->socket.reset();
    return;
  }
  const auto handled = malformed ? fail(heard.error()) : on_builder_message(**heard);
  if (handled) return;
  if (state_ != State::ready) return fail_step(handled.error());
  // The tasks have their container, and maybe those of other steps: nothing that it says now may end them.
  builder_->socket.reset();
}

Result<void> Broker::on_builder_message(const Message& message) {
  if (const auto* text = std::get_if<Note>(&message)) {
    note(*text);
    return {};
  }
  if (const auto* failure = std::get_if<Failure>(&message))
    return fail(Error(failure->kind, failure->text).with_hint(failure->hint));
  if (const auto* place = std::get_if<ScratchPlace>(&message)) {
    scratch_path_ = place->path;
    return {};
  }
  if (state_ != State::building) return {};
  if (const auto* wanted = std::get_if<MapsWanted>(&message)) return write_maps(*wanted);
  if (const auto* ready = std::get_if<Ready>(&message)) return accept_container(*ready);
  if (const auto* running = std::get_if<RunningWanted>(&message)) return join_running(*running);
  if (const auto* found = std::get_if<Found>(&message)) return join_found(*found);
  if (std::holds_alternative<ImageWanted>(message)) return give_image();
  return fail(ErrorKind::corrupt, "the builder sent a message out of turn");
}

Result<void> Broker::write_maps(const MapsWanted& wanted) {
  TRY_ASSIGN(user_namespace_, open_user_namespace(builder_->process.pid(), user_.uid));
  const std::string path = "/proc/" + std::to_string(builder_->process.pid());
  TRY_ASSIGN(const UniqueFd proc, open_file(path, O_PATH | O_DIRECTORY));
  TRY_CONTEXT(phrase(RootOperation::write_id_maps),
              write_id_maps(proc.get(), wanted.remap_root ? 0 : user_.uid, user_.uid, wanted.remap_root ? 0 : user_.gid,
                            user_.gid));
  return tell(builder_->socket.get(), MapsWritten{});
}

Result<void> Broker::give_image() {
  const ImageOrigin origin = input_.request.origin;
  if (origin == ImageOrigin::registry) return begin_import();
  if (origin == ImageOrigin::user) return begin_user_import();
  return fail(ErrorKind::corrupt, "the builder asked for an image that the step does not have");
}

// --- a container that runs already
// -----------------------------------------------------------------------------------------------------------------

/// Namespaces are held by the descriptors from here on: it does not matter whether the container's own tasks end before
/// ours have joined.
Result<void> Broker::join_running(const RunningWanted& wanted) {
  const bool named = wanted.directory != 0;
  auto key = Result<RunningKey>(RunningKey::of_step(user_.uid, wanted.job, wanted.step));
  if (named) {
    TRY_ASSIGN(container_directory_, look_at_descriptor(builder_->process.pid(), wanted.directory));
    key = RunningKey::of_container(user_.uid, wanted.identity, container_directory_.get());
    if (key) container_key_ = *key;
  }
  if (!key) return fail(std::move(key).error());
  ignored_if_running_ = wanted.ignored;
  const auto end = Clock::now() + kAttachLimit;
  for (const UniqueFd& connection : connect_to_running(SITULA_RUNTIME_DIR, *key)) {
    // The other broker answers at once, or is ending its container.
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd entry{connection.get(), POLLIN, 0};
    if (poll(&entry, 1, std::max(0, static_cast<int>(left.count()))) <= 0) continue;
    auto packet = receive_packet(connection.get(), kMaxMessageBytes);
    if (!packet || !*packet) continue;
    const auto message = decode((*packet)->bytes);
    const auto* joined = message ? std::get_if<Joined>(&*message) : nullptr;
    if (joined == nullptr) continue;
    std::vector<UniqueFd>& given = (*packet)->fds;
    auto container = take_namespaces(joined->isolation, given);
    if (!container || given.size() != (named ? 2U : 1U)) continue;
    if (named && !same_directory(given[1].get(), container_directory_.get())) continue;
    return use_running(std::move(*container), joined->workdir, std::move(given[0]));
  }
  return tell(builder_->socket.get(), NotRunning{});
}

/// What the user's own process offers is checked as what it builds is.
Result<void> Broker::join_found(const Found& found) {
  auto container =
      open_found_namespaces(builder_->process.pid(), found.container.isolation, found.namespaces, user_.uid);
  if (!container) return tell(builder_->socket.get(), NotRunning{});
  TRY(seal_memory(shared_environment_.get()));
  return use_running(std::move(*container), found.container.workdir, std::move(shared_environment_));
}

Result<void> Broker::use_running(ContainerNamespaces container, std::string workdir, UniqueFd environment) {
  TRY_ASSIGN(shared_environment_, duplicate_fd(environment.get(), "the container's environment"));
  container_ = std::move(container);
  container_environment_ = std::move(environment);
  workdir_ = std::move(workdir);
  builder_->socket.reset();  // nothing is to be built: it ends
  note({LogLevel::info, "reusing existing container namespaces"});
  if (!ignored_if_running_.empty()) note({LogLevel::warning, ignored_if_running_});
  report_.set_source("running");
  report_.set_root("joined");
  // It goes on to run when the step that made it has ended. One without a name belongs to its step.
  if (container_key_) publish(*container_key_, std::move(container_directory_));
  set_ready();
  return {};
}

Result<void> Broker::accept_container(const Ready& ready) {
  scratch_path_ = ready.scratch_path;
  builder_stays_ = ready.stays;
  keep_scratch();
  auto container = open_container_namespaces(builder_->process.pid(), ready.isolation, user_.uid);
  if (!container) return fail(std::move(container).error().with_context(phrase(RootOperation::hand_out_namespaces)));
  container_ = std::move(*container);
  for (const UniqueFd* environment : {&container_environment_, &shared_environment_})
    TRY(seal_memory(environment->get()));
  workdir_ = ready.workdir;
  report_.set_root(ready.root);
  if (ready.directory != 0) {
    TRY_ASSIGN(UniqueFd directory, look_at_descriptor(builder_->process.pid(), ready.directory));
    TRY_ASSIGN(const RunningKey key, RunningKey::of_container(user_.uid, ready.identity, directory.get()));
    publish(key, std::move(directory));
  } else {
    publish(RunningKey::of_step(user_.uid, input_.request.job_id, input_.request.step_id), UniqueFd());
  }
  if (ready.root == "extracted" || ready.root == "tree") save_image_.reset();
  set_ready();
  return {};
}

/// Without it other steps start the container anew instead of joining it.
void Broker::publish(const RunningKey& key, UniqueFd directory) {
  auto published = RunningContainer::publish(SITULA_RUNTIME_DIR, key, std::move(directory), input_.request.job_id,
                                             input_.request.step_id);
  if (published)
    running_.emplace(std::move(*published));
  else
    syslog(LOG_WARNING, "other steps cannot join: %s", published.error().message().c_str());
}

void Broker::set_ready() {
  report_.end();
  state_ = State::ready;
  deadline_.reset();
  image_ = BuilderImage{};  // the container's own mount keeps the image now
  if (builder_->socket && !builder_stays_) (void)tell(builder_->socket.get(), Finish{});
  for (Client& client : clients_)
    if (client.waiting) grant(client);
  std::erase_if(clients_, [](const Client& client) { return !client.socket; });
}

}  // namespace situla
