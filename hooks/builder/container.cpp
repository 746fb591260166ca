#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/private_directory.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/builder/modes.hpp"
#include "hooks/builder/named.hpp"
#include "hooks/builder/shared_environment.hpp"
#include "hooks/containers/container_store.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/run/init_process.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/mounted_images.hpp"
#include "hooks/run/prepare.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kLookAgain{500};

struct BuiltContainer {
  Container container;
  StepRoot root;
  Isolation isolation;
  StepInit init;  ///< of a PID namespace; none: it is the node's
  UniqueFd proc;  ///< the node's /proc, which the container need not have
};

Result<StepRoot> unnamed_root(const std::string& image_mode, UniqueFd image) {
  StepRoot root;
  if (image_mode == "mounted") {
    root.source.path = std::string(kStageMount) + "/" + kStageImage;
    return root;
  }
  root.source.kind = RootSource::Kind::image;
  root.source.image = std::move(image);
  if (image_mode == "image-fuse")
    root.source.mount = MountKind::fuse;
  else if (image_mode == "image-extract")
    root.source.mount = MountKind::extract;
  else if (image_mode != "image-auto")
    return fail(ErrorKind::usage, "unknown image mode " + image_mode);
  TRY_ASSIGN(root.save_image, duplicate_fd(root.source.image.get(), "the image"));
  return root;
}

/// Before anything is made: the file is written when the work is done, too late to hear that it cannot be.
Result<void> check_save_path(const std::string& path) {
  if (path.empty()) return {};
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return fail(Error(ErrorKind::usage, "--container-save " + printable(path) + " is not a regular file")
                    .with_code(ErrorCode::option));
  const std::string parent = std::filesystem::path(path).parent_path();
  if (access(((parent.empty() ? "." : parent) + "/.").c_str(), W_OK | X_OK) != 0)
    return fail(Error::from_errno(errno, "--container-save " + printable(path))
                    .with_code(ErrorCode::option)
                    .with_hint("its directory must exist on the node, and you must be able to write there"));
  return {};
}

/// Afterwards a range is wanted only if there is one.
Result<void> unshare_for_step(ContainerRequest& request) {
  TRY(unshare_namespaces(kUserNs | kMountNs | namespace_bits(request.isolation)));
  TRY_ASSIGN(const Answer answer, ask_broker(MapsWanted{request.remap_root, request.range.wanted}));
  if (!std::holds_alternative<MapsWritten>(answer.message)) return fail(ErrorKind::cancelled, "the broker gave up");
  TRY(check_range(request));
  request.range.wanted = request.range.wanted && own_id_range();
  return request.isolation.net ? bring_loopback_up() : Result<void>();
}

Result<ImagePlace> place_of(Answer answer, const WantedImage& image, const std::string& directory, LogSink& log) {
  ImagePlace place;
  if (const auto* missing = std::get_if<NotMounted>(&answer.message); missing != nullptr && image.optional()) {
    image.say_missing(missing->why, log);
  } else if (std::holds_alternative<ImageMounted>(answer.message)) {
    place.directory = directory;
  } else if (std::holds_alternative<ImageReady>(answer.message) && answer.fds.size() == 1) {
    TRY_ASSIGN(UniqueFd file, unpacked(std::move(answer.fds[0])));
    place.file = std::make_shared<const UniqueFd>(std::move(file));
  } else {
    return fail(ErrorKind::corrupt, "the broker sent a message out of turn");
  }
  return place;
}

/// What mounts name of registries: while this is a process without namespaces of its own, in which root can mount.
Result<ImagePlaces> get_mounted_images(const BuilderData& data, const EnrootConfig& config, LogSink& log) {
  TRY_ASSIGN(const std::vector<WantedImage> images, wanted_images(config, data.host, data.spec.mounts, {}));
  if (images.size() > kMostOtherImages)
    return fail(Error(ErrorKind::usage, std::to_string(images.size()) + " images of registries are to be mounted")
                    .with_code(ErrorCode::mount_syntax)
                    .with_hint("a container has at most " + std::to_string(kMostOtherImages) +
                               "; squashfs files (sqsh) can be any number"));
  ImagePlaces places;
  uint32_t number = 0;
  for (const WantedImage& image : images) {
    if (image.reference.size() > kLongestReference)
      return fail(
          Error(ErrorKind::usage, "the name of an image is too long: " + printable(image.reference.substr(0, 80)))
              .with_code(ErrorCode::image_name));
    const std::string directory = std::string(kStageMount) + "/" + stage_image(++number);
    if (mkdir(directory.c_str(), 0700) != 0) return fail_errno(errno, "create directory " + directory);
    TRY_ASSIGN(Answer answer, ask_broker(OtherImageWanted{image.reference, number, image.optional()}));
    TRY_ASSIGN(places[image.reference], place_of(std::move(answer), image, directory, log));
  }
  return places;
}

/// Not where its files were copied: then there is no image beneath it any more.
bool lies_on_image(const BuiltContainer& built) {
  return built.container.root.kind != "extracted" && built.container.root.kind != "tree";
}

/// Whether files of the container may lie in the user's data directory without a name, while it runs.
bool may_have_scratch(const ContainerRequest& request) {
  using Kind = RootSource::Kind;
  const RootSource& root = request.root;
  if (root.kind == Kind::image && root.mount != MountKind::fuse) return true;
  return request.writable && (root.kind == Kind::image || root.kind == Kind::mounted);
}

/// Where a link leads that the data directory is: one of root's could be anybody's in a user namespace with a range,
/// for the builder and for the scratch's cleaner. nullopt: it is none, or nobody will ask.
std::optional<std::string> linked_data_path(const ContainerRequest& request) {
  if (!request.range.wanted || !may_have_scratch(request)) return std::nullopt;
  std::filesystem::path path = request.config.data_path();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return std::nullopt;
  const auto data = PrivateDirectory::open(path, {});
  if (!data) return std::nullopt;
  const std::filesystem::path real = std::filesystem::read_symlink(data->held(), error);
  return !error && real.is_absolute() ? std::optional(real.string()) : std::nullopt;
}

bool is_users_file(const ContainerSpec& spec) {
  return spec.name.empty() && image_kind(spec.image) == ImageKind::path;
}

/// nullopt: the tasks have joined a container that runs.
Result<std::optional<BuiltContainer>> build(const std::string& image_mode, const std::string& scratch_name,
                                            BrokerLog& log) {
  TRY_ASSIGN(BuilderData data, read_task_data());
  log.show_debug(data.host.has("SITULA_DEBUG"));
  TRY_ASSIGN(EnrootConfig config, EnrootConfig::load(data.host, log));
  TRY(config.check_flags(log));
  TRY(check_save_path(data.spec.save));
  // To a container that runs nothing is mounted.
  if (image_mode != "named") TRY(check_sources(data.spec.mounts, data.host));
  std::optional<ImagePlaces> images;
  const auto get_images = [&]() -> Result<bool> {
    if (images) return false;
    TRY_ASSIGN(images, get_mounted_images(data, config, log));
    return !images->empty();
  };
  std::optional<StepRoot> root;
  if (image_mode == "named") {
    TRY_ASSIGN(root, find_or_make_container(data, config, get_images, log));
    if (!root) return std::optional<BuiltContainer>();
  } else {
    TRY(get_images());
    TRY_ASSIGN(root, unnamed_root(image_mode, std::move(data.image)));
  }
  config.set("ENROOT_RUNTIME_PATH", std::string(kStageMount) + "/" + kStageDirectory);
  ContainerRequest request = ContainerRequest::of_this_user(std::move(data.spec), data.host, std::move(config), log);
  request.root = std::move(root->source);
  request.step = scratch_name;
  request.scratch_notice = [](const std::string& path) {
    (void)send_packet(builder_fd::kBroker, encode(ScratchPlace{path}));
  };
  request.mounted_images = std::move(*images);
  TRY_ASSIGN(request.range, range_wish(request));
  const std::optional<std::string> data_path = linked_data_path(request);
  TRY(unshare_for_step(request));
  if (data_path && request.range.wanted) request.config.set("ENROOT_DATA_PATH", *data_path);
  if (!request.spec.save.empty()) TRY(root->open_save_directory());
  BuiltContainer built{{}, std::move(*root), request.isolation, {}, {}};
  TRY_ASSIGN(built.proc, open_file("/proc", O_RDONLY | O_DIRECTORY));
  auto prepared = prepare_container(request, log);
  if (!prepared && prepared.error().kind() == ErrorKind::corrupt && is_users_file(request.spec))
    prepared.error().with_context("image " + printable(request.spec.image));
  TRY_ASSIGN(built.container, std::move(prepared));
  if (request.isolation.pid) {
    TRY_ASSIGN(built.init, start_init());
  }
  const Environment& environment = built.container.environment;
  TRY(write_memory(builder_fd::kForTasks, changed_variables(data.host, environment).block()));
  TRY(write_memory(builder_fd::kForOthers, for_other_steps(environment).block()));
  if (!built.root.save_directory) built.root.save_directory = std::move(built.container.root.changes);
  if (!lies_on_image(built)) built.root.save_image.reset();
  if (!request.spec.save.empty() && built.root.save_directory)
    TRY(leave_for_saver(built.root.save_directory, built.root.save_image));
  return std::optional(std::move(built));
}

Result<void> announce(const BuiltContainer& built, bool stays) {
  Ready ready;
  ready.workdir = built.container.workdir;
  ready.scratch_path = built.container.root.scratch.path();
  ready.root = built.container.root.kind;
  ready.on_image = lies_on_image(built);
  ready.isolation = built.isolation;
  ready.stays = stays;
  if (built.root.directory) ready.directory = static_cast<uint32_t>(built.root.directory.get());
  ready.identity = built.root.identity;
  ready.hooks_ms = static_cast<uint32_t>(built.container.hooks_time.count());
  ready.scripts_ms = static_cast<uint32_t>(built.container.session_time.count());
  return send_packet(builder_fd::kBroker, encode(ready));
}

/// True: the broker asked to finish. False: it is gone.
bool await_broker() {
  while (true) {
    pollfd entry{builder_fd::kBroker, POLLIN, 0};
    if (poll(&entry, 1, -1) < 0 && errno != EINTR) return false;
    if (entry.revents == 0) continue;
    const auto packet = receive_packet(builder_fd::kBroker, kMaxMessageBytes);
    if (!packet || !*packet) return false;
    const auto message = decode((*packet)->bytes);
    if (message && std::holds_alternative<Finish>(*message)) return true;
  }
}

Result<NamespaceId> namespace_of(const UniqueFd& proc, const std::string& process, const char* name) {
  TRY_ASSIGN(const UniqueFd found, open_file_at(proc.get(), process + "/ns/" + name, O_RDONLY));
  return namespace_id(found.get());
}

/// Whether any process besides us, and process 1 of its PID namespace, lives in our user and mount namespace: the tasks
/// run on when the broker is lost. What serves images has a mount namespace of its own, and lives as long as ours.
/// Where nobody can tell, nothing is removed under a task.
bool container_in_use(const BuiltContainer& built) {
  const auto user = namespace_of(built.proc, "self", "user"), mounts = namespace_of(built.proc, "self", "mnt");
  const auto names = list_directory(built.proc.get(), "/proc");
  if (!user || !mounts || !names) return true;
  return std::any_of(names->begin(), names->end(), [&](const std::string& name) {
    const auto pid = parse_unsigned(name);
    if (!pid || static_cast<pid_t>(*pid) == getpid() || static_cast<pid_t>(*pid) == built.init.pid) return false;
    const auto its_user = namespace_of(built.proc, name, "user"), its_mounts = namespace_of(built.proc, name, "mnt");
    return its_user && its_mounts && *its_user == *user && *its_mounts == *mounts;
  });
}

int end(Scratch& scratch) {
  const UniqueFd parent = scratch.keep();
  return !parent || remove_tree_at(parent.get(), scratch.name()) ? 0 : 1;
}

}  // namespace

int build_container(const std::string& image_mode, const std::string& scratch_name) {
  BrokerLog log;
  auto made = build(image_mode, scratch_name, log);
  if (!made) return tell_failure(made.error());
  if (!*made) return 0;
  BuiltContainer& built = **made;
  Scratch& scratch = built.container.root.scratch;
  const bool stays = scratch || built.init.line;
  if (const auto announced = announce(built, stays); !announced) return end(scratch);
  // What shall be saved lies in the parcel; here it would only keep files in use. The broker looks for the directory of
  // a named container as long as we are here.
  const UniqueFd directory = std::move(built.root.directory);
  built.root = StepRoot();
  if (!await_broker() && stays)
    while (container_in_use(built)) std::this_thread::sleep_for(kLookAgain);
  return end(scratch);
}

int sweep_unfinished() {
  BrokerLog log;
  const auto data = read_builder_data();
  const auto config = data ? EnrootConfig::load(data->host, log) : fail(data.error());
  if (!config) return 1;
  remove_unfinished(*config, log);
  return 0;
}

int clean_scratch(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return 1;
  const auto data = PrivateDirectory::open(path.substr(0, slash), {});
  if (!data) return data.error().kind() == ErrorKind::not_found ? 0 : 1;
  return remove_tree_at(data->fd(), path.substr(slash + 1)) ? 0 : 1;
}

}  // namespace situla
