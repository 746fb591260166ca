#include "hooks/builder/container.hpp"

#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/namespaces.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_log.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/run/prepare.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

constexpr std::chrono::milliseconds kLookAgain{500};

Result<RootSource> root_source(const std::string& image_mode) {
  RootSource root;
  const std::string stage = kStageMount;
  if (image_mode == "mounted") {
    root.kind = RootSource::Kind::mounted;
    root.path = stage + "/" + kStageImage;
    return root;
  }
  if (fcntl(builder_fd::kImage, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "descriptor of the image");
  root.kind = RootSource::Kind::image;
  root.image = UniqueFd(builder_fd::kImage);
  if (image_mode == "image-fuse")
    root.mount = MountKind::fuse;
  else if (image_mode == "image-extract")
    root.mount = MountKind::extract;
  else if (image_mode != "image-auto")
    return fail(ErrorKind::usage, "unknown image mode " + image_mode);
  return root;
}

Result<void> enter_namespaces(bool remap_root) {
  TRY(unshare_namespaces(kUserNs | kMountNs));
  TRY(send_packet(builder_fd::kBroker, encode(MapsWanted{remap_root})));
  TRY_ASSIGN(const auto packet, receive_packet(builder_fd::kBroker, kMaxMessageBytes));
  if (!packet) return fail(ErrorKind::cancelled, "the broker went away");
  TRY_ASSIGN(const Message message, decode(packet->bytes));
  if (std::holds_alternative<MapsWritten>(message)) return {};
  return fail(ErrorKind::cancelled, "the broker gave up");
}

/// What the container changes. A variable that comes out of it as it went in is left to each task's own value: SLURM_*
/// and CUDA_VISIBLE_DEVICES differ between the tasks that share the container.
Environment changed_variables(const Environment& host, const Environment& container) {
  Environment changed;
  for (const auto& [name, value] : container.entries())
    if (host.get(name) != value) changed.set(name, value);
  return changed;
}

Result<PreparedContainer> prepare(const std::string& image_mode, const std::string& scratch_name, LogSink& log) {
  TRY_ASSIGN(BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  PrepareRequest request;
  TRY_ASSIGN(request.root, root_source(image_mode));
  request.remap_root = wants_remap_root(data.spec, config);
  request.host_uid = geteuid();
  request.host_gid = getegid();
  TRY(enter_namespaces(request.remap_root));
  request.spec = std::move(data.spec);
  request.host = data.host;
  request.stage = std::string(kStageMount) + "/" + kStageDirectory;
  request.scratch_name = scratch_name;
  TRY_ASSIGN(PreparedContainer container, prepare_container(std::move(request), config, log));
  container.environment = changed_variables(data.host, container.environment);
  return container;
}

Result<void> announce(const PreparedContainer& container, bool stays) {
  TRY_ASSIGN(const UniqueFd memory, sealed_memory("situla-environment", container.environment.block()));
  return send_packet(builder_fd::kBroker, encode(Ready{container.workdir, container.scratch_path, stays}),
                     {memory.get()});
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
  auto container = prepare(image_mode, scratch_name, log);
  if (!container) return tell_failure(container.error());
  const bool stays = static_cast<bool>(container->scratch_parent);
  const pid_t server = container->server.pid;
  if (const auto announced = announce(*container, stays); !announced) return end(*container);
  if (!await_broker() && stays)
    while (container_in_use(server)) std::this_thread::sleep_for(kLookAgain);
  return end(*container);
}

int clean_scratch(const std::string& path) {
  return remove_tree(path) ? 0 : 1;
}

}  // namespace situla
