// The second half of Broker: how the image and the container come to be, in the order in which it happens.
#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/after_job.hpp"
#include "plugin/broker/broker.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/container.hpp"
#include "plugin/broker/node/container_images.hpp"
#include "plugin/broker/node/id_ranges.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {

// The image.

void Broker::begin_if_possible() {
  auto* waiting = std::get_if<phase::Waiting>(&phase_);
  const Client* first = waiting != nullptr && !done_ ? clients_.first_waiting() : nullptr;
  if (first == nullptr) return;
  const auto begin = [&]() -> Result<void> {
    TRY(step_prepared());
    if (!place_) {
      TRY_ASSIGN(place_, TaskPlace::of(*step_, first->proc.get(), first->directory));
    }
    const StepRequest& request = step_->request;
    const bool import_first = step_->origin() == ImageOrigin::user && !request.named && !waiting->image;
    return import_first ? begin_import() : begin_build(*first, std::move(waiting->image));
  };
  if (const auto begun = begin(); !begun) fail_step(begun.error());
}

/// What is imported as the user waits until a task has asked, because relative paths begin in its directory.
Result<void> Broker::begin_import() {
  const StepRequest& request = step_->request;
  auto* building = std::get_if<phase::Building>(&phase_);
  const std::string other =
      building != nullptr && building->build.other ? building->build.other->reference : std::string();
  if (!other.empty() || step_->origin() == ImageOrigin::registry) TRY(step_->find_service());
  const bool as_user = other.empty() ? step_->origin() == ImageOrigin::user : !step_->no_store.empty();
  if (as_user && !place_) return {};
  if (other.empty()) report_.begin(StepPhase::import);
  // From a registry: when the store does not have it.
  if (other.empty() && request.origin != ImageOrigin::registry) say_importing(request, request.image, clients_);
  if (other.empty()) release_owed_ = as_user && !request.importer.empty();
  UniqueFd courier = courier_ && other.empty() ? courier_->take_store_line() : UniqueFd();
  auto import = as_user ? ImageImport::as_user(*step_, *place_, other)
                        : ImageImport::into_store(*step_, std::move(courier), other);
  if (!import)
    return fail(std::move(import).error().with_context(
        phrase(as_user ? RootOperation::start_as_user : RootOperation::start_importer)));
  phase::Importing importing{std::move(*import), std::chrono::steady_clock::now() + step_->config.import_timeout};
  if (building != nullptr) importing.build = std::move(building->build);
  enter(std::move(importing));
  return step_->launcher.cgroups.step_prepared() ? write_request(std::get<phase::Importing>(phase_)) : Result<void>();
}

/// The importer has its input from here on, and what reads and writes it lives in the job.
Result<void> Broker::write_request(phase::Importing& importing) {
  TRY_CONTEXT(phrase(RootOperation::start_as_user), importing.import.write_request(*step_));
  return {};
}

void Broker::on_imported(Result<std::optional<Imported>> imported) {
  if (const auto news = std::get<phase::Importing>(phase_).import.take_news()) report_.heard(*news);
  if (!imported) return import_failed(imported.error());
  if (!*imported) {
    const auto why = std::get<phase::Importing>(phase_).import.no_store();
    if (const auto begun = why ? import_without_store(*why) : Result<void>(); !begun) import_failed(begun.error());
    return;
  }
  if (const auto used = use_image(std::move(**imported)); !used) import_failed(used.error());
}

/// A container does without an image that is to be mounted in it, if its user says so.
void Broker::import_failed(const Error& error) {
  auto* importing = std::get_if<phase::Importing>(&phase_);
  auto* building = std::get_if<phase::Building>(&phase_);
  const Build* build = building != nullptr                        ? &building->build
                       : importing != nullptr && importing->build ? &*importing->build
                                                                  : nullptr;
  if (build == nullptr || !build->other || !build->other->optional) return fail_step(error);
  if (importing != nullptr) {
    importing->import.end(*step_);
    build_on(*importing);
  }
  Build& goes_on = std::get<phase::Building>(phase_).build;
  goes_on.other.reset();
  if (const auto told = tell(goes_on.builder.socket(), NotMounted{error.text()}); !told) fail_step(told.error());
}

/// Its builder waits for an answer.
void Broker::build_on(phase::Importing& importing) {
  report_.go_on(StepPhase::prepare);
  enter(phase::Building{std::move(*importing.build), std::chrono::steady_clock::now() + step_->config.build_timeout});
}

/// An image is taken from it.
void Broker::let_end(ImageImport import) {
  constexpr auto kMostEnding = 4;
  ending_imports_.push_back(std::move(import));
  // The root's own may go on for the other nodes of the step.
  const auto is_other = [](const ImageImport& each) { return each.is_other(); };
  if (std::count_if(ending_imports_.begin(), ending_imports_.end(), is_other) <= kMostEnding) return;
  // Whatever its processes still do, and they may be the user's: a step's end does not wait for hundreds of them.
  const auto oldest = std::find_if(ending_imports_.begin(), ending_imports_.end(), is_other);
  oldest->end(*step_);
  ending_imports_.erase(oldest);
  changed_ = true;
}

/// As if nobody had begun: what was started for the store ends.
Result<void> Broker::import_without_store(const std::string& why) {
  syslog(LOG_NOTICE, "%s: each user keeps his images himself: %s", name_.c_str(), as_one_line(why).c_str());
  step_->no_store = why;
  auto build = std::move(std::get<phase::Importing>(phase_).build);
  if (!build) {
    enter(phase::Waiting{});
    return {};
  }
  enter(phase::Building{std::move(*build), std::chrono::steady_clock::now() + step_->config.build_timeout});
  return begin_import();
}

Result<void> Broker::use_image(Imported imported) {
  auto& importing = std::get<phase::Importing>(phase_);
  importing.import.image_taken();
  if (importing.build && importing.build->other) return use_other_image(imported);
  report_.end();
  if (imported.digest != Digest{}) report_.digest = imported.digest.text();
  struct stat status {};
  if (!imported.store_name.empty() && fstat(imported.file.get(), &status) == 0)
    report_.bytes = static_cast<uint64_t>(status.st_size);
  if (step_->request.origin == ImageOrigin::registry)
    report_.source = imported.received             ? "node"
                     : !imported.stored            ? "registry"
                     : imported.store_name.empty() ? "own-store"
                     : imported.local              ? "local"
                                                   : "store";
  else
    report_.source = step_->request.importer.empty() ? "user" : "importer";
  clients_.note({LogLevel::info, "imported docker image: " + step_->request.image});
  if (step_->request.prefetch) {
    report_.root = "none";
    let_end(std::move(importing.import));
    enter(phase::Fetched{{imported.digest.text(), imported.stored && !imported.received}});
    clients_.for_each_waiting([this](Client& client) { on_asked(client); });
    report_.keep();
    return {};
  }
  if (importing.build) {
    // Its container gets a copy.
    importing.build->given = imported.store_name;
    TRY(tell(importing.build->builder.socket(), ImageReady{}, {imported.file.get()}));
    let_end(std::move(importing.import));
    build_on(importing);
    return {};
  }
  report_.begin(StepPhase::mount);
  TRY_ASSIGN(StepImage image, make_image(*step_, {imported.file.get(), imported.store_name, imported.local},
                                         std::move(importing.mapping)));
  report_.end();
  if (!image.mount) image.file = std::move(imported.file);
  let_end(std::move(importing.import));
  enter(phase::Waiting{std::move(image)});
  return {};
}

// The container.

Result<void> Broker::begin_build(const Client& client, std::optional<StepImage> imported) {
  const StepRequest& request = step_->request;
  Build build;
  if (request.named) {
    build.image.mode = "named";
    report_.source = "container";
    if (request.job_scope) keep_environment(*step_);
    keep_cgroups(*step_);
  } else if (imported) {
    build.image = std::move(*imported);
  } else {
    report_.source = "file";
    report_.begin(StepPhase::mount);
    TRY_ASSIGN(build.image, make_image(*step_, {client.socket.get(), "", false}, UniqueFd()));
  }
  report_.begin(StepPhase::prepare);
  TRY_ASSIGN(build.for_tasks, memory_file("situla-environment"));
  TRY_ASSIGN(build.for_others, memory_file("situla-environment"));
  BuilderFiles files{client.socket.get(), build.for_tasks.get(), build.for_others.get()};
  Parcel saved;
  if (request.save) {
    TRY_ASSIGN(saved, make_parcel());
    files.saved = saved.in.get();
  }
  TRY_ASSIGN(build.builder.helper, start_builder(*step_, *place_, files, build.image));
  build.saved = std::move(saved.out);
  enter(phase::Building{std::move(build), std::chrono::steady_clock::now() + step_->config.build_timeout});
  return {};
}

Builder& Broker::builder() {
  if (auto* ready = std::get_if<phase::Ready>(&phase_)) return ready->builder;
  if (auto* importing = std::get_if<phase::Importing>(&phase_)) return importing->build.value().builder;
  return std::get<phase::Building>(phase_).build.builder;
}

void Broker::on_builder() {
  const auto message = hear(builder().socket());
  if (message && !*message)
    return fail_step(ended_early("the container's builder", builder().helper.process, step_->launcher.cgroups));
  const auto handled = message ? on_builder_message(**message) : fail(message.error());
  if (!handled) fail_step(handled.error());
}

Result<void> Broker::on_builder_message(const Message& message) {
  if (const auto* failure = std::get_if<Failure>(&message)) return fail(error_of(*failure));
  if (const auto* note = std::get_if<Note>(&message)) {
    clients_.note(*note);
    return {};
  }
  if (const auto* place = std::get_if<ScratchPlace>(&message)) return builder().take_scratch_path(place->path);
  auto* building = std::get_if<phase::Building>(&phase_);
  if (building == nullptr) return {};
  Build& build = building->build;
  if (const auto* wanted = std::get_if<MapsWanted>(&message)) return write_maps(build, *wanted);
  if (const auto* ready = std::get_if<Ready>(&message)) return accept_container(build, *ready);
  if (const auto* running = std::get_if<RunningWanted>(&message)) return join_running(build, *running);
  if (const auto* found = std::get_if<Found>(&message)) return join_found(build, *found);
  if (const auto* wanted = std::get_if<CopiedImageWanted>(&message)) return mount_copied(build, *wanted);
  if (const auto* wanted = std::get_if<OtherImageWanted>(&message)) return fetch_other(build, *wanted);
  const bool has_image = step_->request.origin == ImageOrigin::registry || step_->request.origin == ImageOrigin::user;
  if (std::holds_alternative<ImageWanted>(message) && has_image) return begin_import();
  return fail(ErrorKind::corrupt, "the builder sent a message out of turn");
}

Result<void> Broker::fetch_other(Build& build, const OtherImageWanted& wanted) {
  if (build.user_namespace || wanted.number != build.others_asked + 1 || wanted.number > kMostOtherImages ||
      wanted.reference.empty() || wanted.reference.size() > kLongestReference)
    return fail(ErrorKind::corrupt, "the builder sent a message out of turn");
  build.others_asked = wanted.number;
  build.other = wanted;
  if (const auto begun = begin_import(); !begun) import_failed(begun.error());
  return {};
}

/// RootOperation::mount_other_image. What cannot be mounted is served.
Result<void> Broker::use_other_image(const Imported& imported) {
  auto& importing = std::get<phase::Importing>(phase_);
  Build& build = *importing.build;
  const OtherImageWanted& wanted = *build.other;
  clients_.note({LogLevel::info, "imported docker image: " + printable(wanted.reference)});
  TRY_ASSIGN(StepImage image,
             make_image(*step_, {imported.file.get(), imported.store_name, imported.local}, UniqueFd()));
  if (image.mount) {
    auto attached = attach_image(build.builder.helper.process, image.mount, stage_image(wanted.number));
    if (!attached && step_->config.mount == MountKind::kernel)
      return fail(std::move(attached).error().with_context(phrase(RootOperation::mount_other_image)));
    if (!attached) {
      image.not_mounted = attached.error().message();
      image.mount.reset();
    }
  }
  if (!image.not_mounted.empty())
    clients_.note({LogLevel::warning, printable(wanted.reference) +
                                          " is served by a process, as it cannot be mounted: " + image.not_mounted});
  if (image.mount) {
    if (image.in_use) build.others.push_back(std::move(*image.in_use));
    TRY(tell(build.builder.socket(), ImageMounted{}));
  } else {
    TRY(tell(build.builder.socket(), ImageReady{}, {imported.file.get()}));
  }
  build.other.reset();
  let_end(std::move(importing.import));
  build_on(importing);
  return {};
}

/// RootOperation::keep_container_image. Whatever does not work, the copy is there to be served.
Result<void> Broker::mount_copied(Build& build, const CopiedImageWanted& wanted) {
  // Once: each time a process of root is forked, and the log may get two lines.
  if (!step_->request.named || build.user_namespace || std::exchange(build.copied_asked, true))
    return fail(ErrorKind::corrupt, "the builder sent a message out of turn");
  const uid_t uid = step_->user.uid;
  if (wanted.is_new && !build.given.empty())
    if (const auto noted = note_copied_image(SITULA_RUNTIME_DIR, uid, wanted, build.given); !noted)
      syslog(LOG_NOTICE, "%s: %s", name_.c_str(), noted.error().message().c_str());
  const auto mount = [&]() -> Result<void> {
    const auto name = find_copied_image(SITULA_RUNTIME_DIR, uid, wanted);
    if (!name) return fail(ErrorKind::not_found, "");
    TRY_ASSIGN(StepImage image, mount_copied_image(*step_, *name));
    TRY(attach_image(build.builder.helper.process, image.mount, kStageImage));
    image.mode = build.image.mode;
    build.image = std::move(image);
    return {};
  };
  const auto mounted = mount();
  if (!mounted && !mounted.error().message().empty())
    syslog(LOG_NOTICE, "%s: the copy of the image is served: %s", name_.c_str(),
           as_one_line(mounted.error().message()).c_str());
  return tell(build.builder.socket(), mounted ? Message(ImageMounted{}) : Message(NotMounted{}));
}

Result<void> Broker::write_maps(Build& build, const MapsWanted& wanted) {
  const pid_t pid = build.builder.helper.process.pid();
  const Identity& user = step_->user;
  TRY_ASSIGN(build.user_namespace, open_user_namespace(pid, user.uid));
  TRY_ASSIGN(const UniqueFd proc, open_file("/proc/" + std::to_string(pid), O_PATH | O_DIRECTORY));
  if (wanted.range) build.range = range_of(user, step_->config.id_ranges);
  const IdMaps maps = container_maps(user, wanted.remap_root, build.range);
  if (maps.groups.left_out > 0)
    clients_.note({LogLevel::warning, std::to_string(maps.groups.left_out) + " of your " +
                                          std::to_string(user.groups.size()) +
                                          " groups are not seen in the container: the kernel has no room for more"});
  TRY_CONTEXT(phrase(RootOperation::write_id_maps), write_id_maps(proc.get(), maps));
  return tell(build.builder.socket(), MapsWritten{});
}

Result<void> Broker::accept_container(Build& build, const Ready& message) {
  Builder& made_by = build.builder;
  TRY(made_by.take_scratch_path(message.scratch_path));
  made_by.stays = message.stays;
  keep_scratch(*step_, made_by.scratch_path);
  const pid_t pid = made_by.helper.process.pid();
  auto namespaces = open_container_namespaces(pid, message.isolation, step_->user.uid);
  if (!namespaces) return fail(std::move(namespaces).error().with_context(phrase(RootOperation::hand_out_namespaces)));
  TRY(seal_memory(build.for_tasks.get()));
  TRY(seal_memory(build.for_others.get()));
  auto key = RunningKey::of_step(step_->user.uid, step_->request.job_id, step_->request.step_id);
  UniqueFd directory;
  if (message.directory != 0) {
    TRY_ASSIGN(directory, look_at_descriptor(pid, message.directory));
    TRY_ASSIGN(key, RunningKey::of_container(step_->user.uid, message.identity, directory.get()));
  }
  // Of an id-mapped mount it is not said, and of a named container only whether its image is mounted.
  const OwnerWay way = build.image.owner_way;
  const bool viewed = (way == OwnerWay::reflink || way == OwnerWay::dm) && !step_->request.named;
  report_.root = viewed ? to_string(way) : message.root;
  if (!message.on_image) build.image.saved.reset();
  report_.prepared(message.hooks_ms, message.scripts_ms);
  phase::Ready ready{{std::move(*namespaces), message.workdir, std::move(build.for_tasks), build.range.has_value()},
                     std::move(build.for_others)};
  ready.user_namespace = std::move(build.user_namespace);
  ready.range = build.range;
  publish(ready, key, std::move(directory));
  set_ready(build, std::move(ready));
  return {};
}

// A container that runs already.

Result<void> Broker::join_running(Build& build, const RunningWanted& wanted) {
  auto key = RunningKey::of_step(step_->user.uid, wanted.job, wanted.step);
  build.wanted = Wanted{std::nullopt, UniqueFd(), wanted.ignored};
  if (wanted.directory != 0) {
    TRY_ASSIGN(build.wanted.directory, look_at_descriptor(build.builder.helper.process.pid(), wanted.directory));
    TRY_ASSIGN(key, RunningKey::of_container(step_->user.uid, wanted.identity, build.wanted.directory.get()));
    build.wanted.name = key;
  }
  TRY_ASSIGN(auto container, find_running(SITULA_RUNTIME_DIR, key, build.wanted.directory));
  return container ? use_running(build, std::move(*container)) : tell(build.builder.socket(), NotRunning{});
}

/// What the user's own process offers is checked as what it builds is.
Result<void> Broker::join_found(Build& build, const Found& found) {
  auto namespaces = open_found_namespaces(build.builder.helper.process.pid(), found.container.isolation,
                                          found.namespaces, step_->user.uid);
  if (!namespaces) return tell(build.builder.socket(), NotRunning{});
  TRY(seal_memory(build.for_others.get()));
  return use_running(
      build, {std::move(*namespaces), found.container.workdir, std::move(build.for_others), found.container.has_range});
}

Result<void> Broker::use_running(Build& build, StepContainer container) {
  TRY_ASSIGN(UniqueFd for_others, duplicate_fd(container.environment.get(), "the container's environment"));
  build.builder.helper.socket.reset();  // nothing is to be built: it ends
  build.others.clear();                 // nor are the images in use that it was to mount
  clients_.note({LogLevel::detail, "reusing existing container namespaces"});
  if (!build.wanted.ignored.empty()) clients_.note({LogLevel::warning, build.wanted.ignored});
  report_.source = "running";
  report_.root = "joined";
  phase::Ready ready{std::move(container), std::move(for_others)};
  // It goes on to run when the step that made it has ended. One without a name belongs to its step.
  if (build.wanted.name) publish(ready, *build.wanted.name, std::move(build.wanted.directory));
  set_ready(build, std::move(ready));
  return {};
}

/// Without it other steps start the container anew instead of joining it.
void Broker::publish(phase::Ready& ready, const RunningKey& key, UniqueFd directory) const {
  auto published = RunningContainer::publish(SITULA_RUNTIME_DIR, key, std::move(directory), step_->request.job_id,
                                             step_->request.step_id);
  if (published)
    ready.published.emplace(std::move(*published));
  else
    syslog(LOG_WARNING, "other steps cannot join: %s", published.error().message().c_str());
}

void Broker::set_ready(Build& build, phase::Ready ready) {
  report_.begin(StepPhase::tasks);
  ready.builder = std::move(build.builder);
  ready.others = std::move(build.others);
  ready.image = std::move(build.image.in_use);  // the mount itself is the container's own now
  if (step_->request.save)
    ready.save.emplace(std::move(build.saved), std::move(build.image.saved), ready.container.has_range, control_.get());
  if (ready.builder.helper.socket && !ready.builder.stays) (void)tell(ready.builder.socket(), Finish{});
  enter(std::move(ready));
  clients_.for_each_waiting([this](Client& client) { grant(client); });
  report_.keep();
  recorder_.start(*step_, report_);
}

}  // namespace situla
