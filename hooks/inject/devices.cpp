#include <array>
#include <climits>

#include <unistd.h>

#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr const char* kDevicesOrigin = "built-in hook devices";

constexpr MountFlags kDirectoryFlags{.no_suid = true, .no_dev = true, .no_exec = true};
constexpr MountFlags kNodeFlags{.no_suid = true, .no_exec = true};

MountStep new_file_system(const char* type, const char* target, MountParameters parameters, const MountFlags& flags,
                          std::optional<Propagation> propagation = std::nullopt) {
  return {.kind = StepKind::filesystem,
          .source = type,
          .target = target,
          .type = type,
          .create = CreateTarget::directory,
          .flags = flags,
          .parameters = std::move(parameters),
          .propagation = propagation,
          .origin = kDevicesOrigin};
}

MountStep bind_node(const std::string& source, const std::string& target) {
  return {.source = source,
          .target = target,
          .create = CreateTarget::file,
          .flags = kNodeFlags,
          .propagation = Propagation::private_mount,
          .origin = kDevicesOrigin};
}

/// What not every node has.
MountStep bind_if_there(const char* path, CreateTarget create, Propagation propagation) {
  return {.source = path,
          .target = path,
          .create = create,
          .on_failure = OnFailure::ignore,
          .flags = kDirectoryFlags,
          .propagation = propagation,
          .propagation_recursive = propagation == Propagation::slave,
          .origin = kDevicesOrigin};
}

/// As enroot's script has them, in its order.
std::vector<MountStep> device_steps(bool own_ipc) {
  std::vector<MountStep> steps = {
      {.kind = StepKind::detach, .target = "/dev", .on_failure = OnFailure::ignore, .origin = kDevicesOrigin},
      new_file_system("tmpfs", "/dev", {{"mode", "755"}}, kNodeFlags, Propagation::slave)};
  for (const char* node : {"/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "/dev/random"})
    steps.push_back(bind_node(node, node));
  steps.push_back(new_file_system("devpts", "/dev/pts", {{"newinstance", ""}, {"ptmxmode", "0666"}, {"mode", "620"}},
                                  kNodeFlags, Propagation::slave));
  steps.push_back(bind_node("/dev/tty", "/dev/tty"));
  if (own_ipc) {
    steps.push_back(new_file_system("tmpfs", "/dev/shm", {{"mode", "1777"}}, kDirectoryFlags));
    steps.push_back(new_file_system("mqueue", "/dev/mqueue", {}, kDirectoryFlags));
  } else {
    steps.push_back(bind_if_there("/dev/shm", CreateTarget::directory, Propagation::slave));
    steps.push_back(bind_if_there("/dev/mqueue", CreateTarget::directory, Propagation::slave));
  }
  steps.push_back(bind_if_there("/dev/hugepages", CreateTarget::directory, Propagation::slave));
  steps.push_back(bind_if_there("/dev/log", CreateTarget::file, Propagation::private_mount));
  // The user's terminal keeps a name although the container has pseudo terminals of its own.
  std::array<char, PATH_MAX> terminal{};
  if (ttyname_r(STDIN_FILENO, terminal.data(), terminal.size()) == 0)
    steps.push_back(bind_node(terminal.data(), "/dev/console"));
  return steps;
}

}  // namespace

Result<ContainerEdits> devices_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.restrict_devices && !context.own_ipc) return edits;
  edits.mounts = device_steps(context.own_ipc);
  constexpr std::array<std::pair<const char*, const char*>, 5> kLinks = {{{"/dev/fd", "/proc/self/fd"},
                                                                          {"/dev/ptmx", "/dev/pts/ptmx"},
                                                                          {"/dev/stdin", "/proc/self/fd/0"},
                                                                          {"/dev/stdout", "/proc/self/fd/1"},
                                                                          {"/dev/stderr", "/proc/self/fd/2"}}};
  for (const auto& [path, target] : kLinks) edits.files.push_back({FileChange::Kind::link, path, target, 0777});
  return edits;
}

}  // namespace situla
