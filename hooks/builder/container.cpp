#include "hooks/builder/container.hpp"

#include <chrono>
#include <climits>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/network.hpp"
#include "common/sys/private_directory.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/broker_log.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/builder/named.hpp"
#include "hooks/builder/shared_environment.hpp"
#include "hooks/run/container_store.hpp"
#include "hooks/run/init_process.hpp"
#include "hooks/run/isolation.hpp"
#include "hooks/run/prepare.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kLookAgain{500};

/// What is made before the namespaces are: paths of the host still mean something, and the user is still himself.
struct Source {
  RootSource root;
  UniqueFd container;                   ///< directory of a named one
  std::string identity;                 ///< of a named one
  UniqueFd save_directory, save_image;  ///< what will be exported, as far as it is known by now
};

struct BuiltContainer {
  PreparedContainer prepared;
  Source source;
  Isolation isolation;
  bool saves = false;           ///< --container-save
  Environment own, for_others;  ///< variables for the tasks of this step, and of others that join it
  UniqueFd init;                ///< socket whose end ends the PID namespace
};

Result<Source> unnamed_source(const std::string& image_mode, BuilderData& data) {
  Source source;
  RootSource& root = source.root;
  if (image_mode == "mounted") {
    root.kind = RootSource::Kind::mounted;
    root.path = std::string(kStageMount) + "/" + kStageImage;
    return source;
  }
  root.kind = RootSource::Kind::image;
  root.image = std::move(data.image);
  if (image_mode == "image-fuse")
    root.mount = MountKind::fuse;
  else if (image_mode == "image-extract")
    root.mount = MountKind::extract;
  else if (image_mode != "image-auto")
    return fail(ErrorKind::usage, "unknown image mode " + image_mode);
  TRY_ASSIGN(source.save_image, duplicate_fd(root.image.get(), "the image"));
  return source;
}

/// nullopt: the tasks have joined a container that runs.
Result<std::optional<Source>> find_source(const std::string& image_mode, BuilderData& data, const EnrootConfig& config,
                                          LogSink& log) {
  if (image_mode != "named") {
    TRY_ASSIGN(Source source, unnamed_source(image_mode, data));
    return std::optional(std::move(source));
  }
  TRY_ASSIGN(auto named, find_or_make_container(data, config, log));
  if (!named) return std::optional<Source>();
  return std::optional(Source{std::move(named->source), std::move(named->directory), std::move(named->identity),
                              std::move(named->save_directory), std::move(named->save_image)});
}

/// Before anything is made: the file is written when the work is done, too late to hear that it cannot be.
Result<void> check_save_path(const std::string& path) {
  if (path.empty()) return {};
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return fail(ErrorKind::usage, "--container-save " + printable(path) + " is not a regular file");
  const std::string parent = std::filesystem::path(path).parent_path();
  if (access(((parent.empty() ? "." : parent) + "/.").c_str(), W_OK | X_OK) != 0)
    return fail(Error::from_errno(errno, "--container-save " + printable(path))
                    .with_hint("its directory must exist on the node, and you must be able to write there"));
  return {};
}

/// Relative mount sources are meant from where the task is. PWD is missing with `srun --export=NONE`, and another
/// directory with `srun --chdir`.
void set_directory(Environment& host) {
  std::string here(PATH_MAX, '\0');
  if (getcwd(here.data(), here.size()) != nullptr) host.set("PWD", here.c_str());
}

Result<void> enter_namespaces(bool remap_root, const Isolation& isolation) {
  TRY(unshare_namespaces(kUserNs | kMountNs | namespace_bits(isolation)));
  TRY_ASSIGN(const Answer answer, ask_broker(MapsWanted{remap_root}));
  if (!std::holds_alternative<MapsWritten>(answer.message)) return fail(ErrorKind::cancelled, "the broker gave up");
  return isolation.net ? bring_loopback_up() : Result<void>();
}

/// nullopt: see find_source().
Result<std::optional<BuiltContainer>> build(const std::string& image_mode, const std::string& scratch_name,
                                            LogSink& log) {
  TRY_ASSIGN(BuilderData data, read_task_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  TRY(check_save_path(data.spec.save));
  BuiltContainer built;
  TRY_ASSIGN(auto source, find_source(image_mode, data, config, log));
  if (!source) return std::optional<BuiltContainer>();
  built.source = std::move(*source);
  built.saves = !data.spec.save.empty();
  built.isolation = wanted_isolation(data.spec.unshare, config);

  PrepareRequest request;
  request.remap_root = wants_remap_root(data.spec, config);
  request.host_uid = geteuid();
  request.host_gid = getegid();
  request.devices = read_device_settings(log);
  TRY(enter_namespaces(request.remap_root, built.isolation));
  request.root = std::move(built.source.root);
  request.spec = std::move(data.spec);
  request.host = data.host;
  set_directory(request.host);
  request.isolation = built.isolation;
  request.for_step = true;
  request.stage = std::string(kStageMount) + "/" + kStageDirectory;
  request.scratch_name = scratch_name;
  request.scratch_notice = [](const std::string& path) {
    (void)send_packet(builder_fd::kBroker, encode(ScratchPlace{path}));
  };
  TRY_ASSIGN(built.prepared, prepare_container(std::move(request), config, log));
  if (built.isolation.pid) {
    TRY_ASSIGN(built.init, start_init());
  }
  built.own = changed_variables(data.host, built.prepared.environment);
  built.for_others = for_other_steps(built.prepared.environment);
  if (!built.source.save_directory) built.source.save_directory = std::move(built.prepared.changes);
  // A tree that was extracted has no image beneath it any more.
  if (built.prepared.root_kind == "extracted") built.source.save_image.reset();
  return std::optional(std::move(built));
}

Result<void> announce(const BuiltContainer& built, bool stays) {
  TRY(write_memory(builder_fd::kForTasks, built.own.block()));
  TRY(write_memory(builder_fd::kForOthers, built.for_others.block()));
  const Source& source = built.source;
  if (built.saves && source.save_directory) TRY(leave_for_saver(source.save_directory, source.save_image));
  Ready ready;
  ready.workdir = built.prepared.workdir;
  ready.scratch_path = built.prepared.scratch_path;
  ready.root = built.prepared.root_kind;
  ready.isolation = built.isolation;
  ready.stays = stays;
  if (source.container) ready.directory = static_cast<uint32_t>(source.container.get());
  ready.identity = source.identity;
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

/// Whether any process besides us and the image server lives in our user namespace: the tasks run on when the broker is
/// lost.
bool container_in_use(pid_t server) {
  const auto own = open_namespace(0, "user");
  if (!own) return false;
  const auto own_id = namespace_id(own->get());
  const auto names = list_directory("/proc");
  if (!own_id || !names) return false;
  for (const std::string& name : *names) {
    const auto pid = parse_unsigned(name);
    if (!pid || static_cast<pid_t>(*pid) == getpid() || static_cast<pid_t>(*pid) == server) continue;
    const auto user = open_namespace(static_cast<pid_t>(*pid), "user");
    if (!user) continue;
    const auto id = namespace_id(user->get());
    if (id && *id == *own_id) return true;
  }
  return false;
}

int end(PreparedContainer& container) {
  if (!container.scratch_parent) return 0;
  return remove_tree_at(container.scratch_parent.get(), container.scratch_name) ? 0 : 1;
}

}  // namespace

int build_container(const std::string& image_mode, const std::string& scratch_name) {
  BrokerLog log;
  auto made = build(image_mode, scratch_name, log);
  if (!made) return tell_failure(made.error());
  if (!*made) return 0;
  BuiltContainer& built = **made;
  PreparedContainer& container = built.prepared;
  const bool stays = static_cast<bool>(container.scratch_parent) || built.init;
  const pid_t server = container.server.pid;
  if (const auto announced = announce(built, stays); !announced) return end(container);
  // What shall be saved lies in the parcel; here it would only keep files in use. The broker looks for the directory of
  // a named container as long as we are here.
  const UniqueFd directory = std::move(built.source.container);
  built.source = Source();
  if (!await_broker() && stays)
    while (container_in_use(server)) std::this_thread::sleep_for(kLookAgain);
  return end(container);
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
