#include "hooks/builder/named.hpp"

#include <array>
#include <chrono>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/shared_environment.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/keeper.hpp"
#include "hooks/containers/named_container.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/attach.hpp"

namespace situla {
namespace {

/// Between looking and making, another step may make the container, or a user may remove it: look again.
constexpr int kMaxAttempts = 16;

/// Its programs have given its top directory to another user, who lets nobody else in.
Error not_readable(const std::string& container) {
  return Error(ErrorKind::denied, "save " + container + ": its own programs forbid you to read it")
      .with_code(ErrorCode::denied)
      .with_hint("a step that starts it can save it, and so can export");
}

class NamedSearch {
 public:
  NamedSearch(const BuilderData& data, const EnrootConfig& config, const std::function<Result<bool>()>& get_images,
              LogSink& log)
      : data_(data), spec_(data.spec), config_(config), get_images_(get_images), log_(log) {}

  Result<std::optional<StepRoot>> run() {
    TRY_ASSIGN(const bool joined_step, join_step());
    if (joined_step) return std::optional<StepRoot>();
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      auto container = find_container(config_, spec_.directory);
      if (!container && container.error().kind() != ErrorKind::not_found) return fail(container.error());
      if (!container) {
        TRY(make());
        continue;
      }
      auto root = open_root(*container);
      if (!root && root.error().kind() == ErrorKind::not_found) continue;
      if (!root) return fail(std::move(root).error());
      TRY_ASSIGN(const bool joined, join(*container, *root));
      if (joined) return std::optional<StepRoot>();
      TRY(check_sources(spec_.mounts, data_.host));
      if (!made_ && spec_.name_flag == NameFlag::create) TRY(check_reuse(*container));
      TRY_ASSIGN(const bool waited, get_images_());
      if (waited) continue;
      if (!made_) TRY(check_reuse(*container));
      TRY(ask_for_mount(*root));
      return std::optional(std::move(*root));
    }
    return fail(ErrorKind::failure, described() + " is removed as fast as it is made");
  }

 private:
  [[nodiscard]] std::string described() const { return "the container \"" + spec_.name + '"'; }

  [[nodiscard]] std::string ignored() const {
    return spec_.mounts.empty() ? "" : "ignoring --container-mounts because the container is running already";
  }

  [[nodiscard]] Error not_running() const {
    return Error(ErrorKind::not_found, described() + " is not running on this node")
        .with_code(ErrorCode::container_not_found)
        .with_hint("--container-name=" + spec_.name + ":auto starts it");
  }

  [[nodiscard]] bool may_join() const {
    return !made_ && spec_.name_flag != NameFlag::no_exec && spec_.name_flag != NameFlag::create;
  }

  /// True: the tasks have got what runs.
  static Result<bool> ask_to_join(const RunningWanted& wanted) {
    const auto asked = ask_broker(wanted);
    if (!asked && asked.error().kind() == ErrorKind::cancelled) return true;
    if (!asked) return fail(asked.error());
    if (std::holds_alternative<NotRunning>(asked->message)) return false;
    return fail(ErrorKind::corrupt, "the broker sent a message out of turn");
  }

  /// COMPAT.md 10: JOB.STEP is the container without a name of that step. A container may have such a name, too
  /// ("24.10"): when there is no such step here, it is meant.
  Result<bool> join_step() {
    const auto step = parse_step_name(spec_.name);
    // What shall be saved is known to the step whose container it is only.
    if (!step || !may_join() || !spec_.save.empty()) return false;
    TRY_ASSIGN(const bool joined,
               ask_to_join({.ignored = ignored(), .identity = {}, .job = step->job, .step = step->step}));
    return joined;
  }

  [[nodiscard]] Error no_step() const {
    return Error(ErrorKind::not_found, "step " + spec_.name +
                                           " runs no container without a name on this node, and there is no " +
                                           "container of that name")
        .with_code(ErrorCode::container_not_found)
        .with_hint("squeue --steps shows where steps run; --container-image makes a container of that name");
  }

  Result<bool> join(const NamedContainer& container, const StepRoot& root) {
    if (!may_join()) return false;
    if (!spec_.save.empty() && !root.save_directory) {
      // Who starts it reads it as its root.
      if (spec_.name_flag == NameFlag::exec) return fail(not_readable(described()));
      return false;
    }
    if (!spec_.save.empty()) TRY(leave_for_saver(root.save_directory, root.save_image));
    keep_layers_for_broker(container);
    TRY_ASSIGN(const bool joined_other, ask_to_join({.ignored = ignored(),
                                                     .identity = root.identity,
                                                     .directory = static_cast<uint32_t>(root.directory.get())}));
    if (joined_other) return true;
    TRY_ASSIGN(const bool joined, join_process(container));
    if (!joined && spec_.name_flag == NameFlag::exec) return fail(not_running());
    return joined;
  }

  /// What no step made: `start`, of this user.
  Result<bool> join_process(const NamedContainer& container) {
    const auto known = KnownContainer::of(container);
    const auto processes = known ? running_processes({*known}) : fail(ErrorKind::not_found, container.path);
    if (!processes) return false;
    for (const RunningProcess& process : *processes) {
      if (process.container != container.path) continue;
      if (const auto joined = offer(process.pid); joined && *joined) return true;
    }
    return false;
  }

  /// An error: it ended meanwhile, or is not like a container of a step. False also for a step's container that is not
  /// ready yet, or whose broker has just ended: there is no environment to take over.
  Result<bool> offer(pid_t pid) {
    TRY_ASSIGN(AttachTarget target, AttachTarget::open(pid));
    if (!target.is_at_work()) return false;
    TRY_ASSIGN(const Environment environment, target.environment());
    Found found{{target.image_workdir(), target.isolation(), target.has_range()}, {}};
    TRY_ASSIGN(const std::vector<UniqueFd> fds, target.take_namespaces());
    for (const UniqueFd& fd : fds) found.namespaces.push_back(static_cast<uint32_t>(fd.get()));
    TRY(write_memory(builder_fd::kForOthers, for_other_steps(environment).block()));
    const auto answer = ask_broker(found);
    if (!answer && answer.error().kind() == ErrorKind::cancelled) return true;
    if (!answer) return fail(answer.error());
    return false;
  }

  /// As with the original, the container is used as it is, whatever image is named beside it.
  void warn_of_other_image(const NamedContainer& container) const {
    const auto origin = spec_.image.empty() ? std::nullopt : origin_of(container.directory->get());
    if (!origin || origin->image == printable(image_name())) return;
    const std::time_t made = std::chrono::system_clock::to_time_t(origin->made);
    std::tm day{};
    std::array<char, 32> text{};
    (void)localtime_r(&made, &day);
    const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &day);
    log_.warning(described() + " was made of " + origin->image + " on " + std::string(text.data(), length) +
                 " and is used as it is, without " + printable(image_name()) + "; to replace it: enroot remove " +
                 spec_.directory);
  }

  [[nodiscard]] std::string image_name() const { return full_image_name(spec_.image, data_.host, current_directory()); }

  Result<void> check_reuse(const NamedContainer& container) {
    if (spec_.name_flag == NameFlag::create)
      return fail(Error(ErrorKind::exists, described() + " exists already")
                      .with_code(ErrorCode::container_exists)
                      .with_hint("--container-name=" + spec_.name + " uses it; enroot remove " + spec_.directory +
                                 " deletes it"));
    log_.detail("reusing existing container filesystem");
    warn_of_other_image(container);
    return {};
  }

  /// The kernel's mount of the image that the container's copy was made of, if this node has it.
  Result<void> ask_for_mount(StepRoot& root) const {
    struct stat copy {};
    if (root.source.kind != RootSource::Kind::layered || fstat(root.save_image.get(), &copy) != 0) return {};
    constexpr uint64_t kSecond = 1'000'000'000;
    CopiedImageWanted wanted{root.identity};
    wanted.is_new = !root.identity.empty() && root.identity == made_of_given_;
    wanted.inode = copy.st_ino;
    wanted.bytes = static_cast<uint64_t>(copy.st_size);
    wanted.changed = static_cast<uint64_t>(copy.st_ctim.tv_sec) * kSecond + static_cast<uint64_t>(copy.st_ctim.tv_nsec);
    TRY_ASSIGN(const Answer answer, ask_broker(wanted));
    if (std::holds_alternative<ImageMounted>(answer.message))
      root.source.mounted = std::string(kStageMount) + "/" + kStageImage;
    return {};
  }

  Result<void> make() {
    if (spec_.name_flag == NameFlag::exec) return fail(not_running());
    if (spec_.image.empty() && parse_step_name(spec_.name)) return fail(no_step());
    if (spec_.image.empty())
      return fail(Error(ErrorKind::not_found,
                        "a container with name \"" + spec_.name + "\" does not exist, and --container-image is not set")
                      .with_code(ErrorCode::container_not_found)
                      .with_hint((has_namesake() ? explained_prefix() + "; " : "") +
                                 "containers are kept on each node by itself: " + config_.data_path() +
                                 ", enroot list"));
    NewContainer request;
    TRY(check_sources(spec_.mounts, data_.host));
    TRY_ASSIGN(request.path, container_path(config_, spec_.directory));
    TRY_ASSIGN(request.wish, storage_wish(data_.job, log_));
    if (!image_) {
      TRY_ASSIGN(image_, get_image());
    }
    TRY(get_images_());
    request.image = image_.get();
    request.origin = image_name();
    const bool for_root =
        spec_.remap_root == Tristate::unset ? config_.flag("ENROOT_REMAP_ROOT") : spec_.remap_root == Tristate::yes;
    request.owners = owners_wish(data_.host, for_root);
    auto created = create_container(config_, request, log_);
    made_ = created.has_value();
    if (made_) say_where();
    if (made_ && image_kind(spec_.image) != ImageKind::path) made_of_given_ = *created;
    // Another step was faster. Whether that is good depends on the flag.
    if (made_ || created.error().kind() == ErrorKind::exists) return {};
    return fail(std::move(created).error().with_context("create " + described() + " from " + printable(spec_.image)));
  }

  /// `enroot create -n NAME` has made one that is called as this one is in --container-name.
  [[nodiscard]] bool has_namesake() const { return find_container(config_, spec_.name).has_value(); }
  [[nodiscard]] std::string explained_prefix() const {
    return "enroot's container " + spec_.name + " is another one: --container-name=" + spec_.name + " is " +
           spec_.directory + " there";
  }

  /// As pyxis, which takes the variable away (COMPAT.md 2): who has set it would look for the container there.
  void say_where() const {
    if (has_namesake()) log_.warning(explained_prefix());
    const std::string given = data_.job.get_or("ENROOT_DATA_PATH", "");
    if (!given.empty() && given != config_.data_path())
      log_.warning("ENROOT_DATA_PATH of the job's environment is not used for " + described() + ", which is in " +
                   config_.data_path());
  }

  Result<UniqueFd> get_image() {
    if (image_kind(spec_.image) == ImageKind::path) return open_image_file(image_path(spec_.image, data_.host));
    TRY_ASSIGN(Answer answer, ask_broker(ImageWanted{}));
    if (!std::holds_alternative<ImageReady>(answer.message) || answer.fds.size() != 1)
      return fail(ErrorKind::corrupt, "the broker sent no image");
    return unpacked(std::move(answer.fds[0]));
  }

  static Result<StepRoot> open_root(const NamedContainer& container) {
    StepRoot root;
    root.source = RootSource::of(container);
    // It may be removed at any moment; its own name is what the user knows.
    const auto part = [&](const std::string& path, int flags) {
      auto fd = open_file(path, flags);
      const bool gone = !fd && fd.error().errnum() == ENOENT;
      return gone ? fail(Error::from_errno(ENOENT, "open the container " + container.path)) : std::move(fd);
    };
    const bool layered = container.kind == NamedContainer::Kind::layered;
    auto changes = part(layered ? container.upper() : container.held(), O_RDONLY | O_DIRECTORY);
    if (changes)
      root.save_directory = std::move(*changes);
    else if (changes.error().errnum() != EACCES)
      return fail(std::move(changes).error());
    if (layered) {
      TRY_ASSIGN(root.save_image, part(container.image(), O_RDONLY));
    }
    TRY_ASSIGN(root.directory, duplicate_fd(container.directory->get(), "the container"));
    root.identity = identity_of(root.directory.get());
    return root;
  }

  const BuilderData& data_;
  const ContainerSpec& spec_;
  const EnrootConfig& config_;
  const std::function<Result<bool>()>& get_images_;
  LogSink& log_;
  UniqueFd image_;
  bool made_ = false;
  std::string made_of_given_;  ///< identity of the container that was made of what the broker gave; empty: none
};

}  // namespace

Result<void> StepRoot::open_save_directory() {
  if (save_directory || !directory) return {};
  NamedContainer container;
  container.path = fd_path(directory.get());
  TRY_ASSIGN(save_directory, open_file(source.kind == RootSource::Kind::layered ? container.upper() : container.path,
                                       O_RDONLY | O_DIRECTORY));
  return {};
}

Result<std::optional<StepRoot>> find_or_make_container(const BuilderData& data, const EnrootConfig& config,
                                                       const std::function<Result<bool>()>& get_images, LogSink& log) {
  return NamedSearch(data, config, get_images, log).run();
}

}  // namespace situla
