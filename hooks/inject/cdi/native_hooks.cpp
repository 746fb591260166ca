#include <algorithm>
#include <array>

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "hooks/inject/cdi/spec_edits.hpp"
#include "hooks/inject/ldcache/forward_compat.hpp"
#include "hooks/inject/nvidia/params.hpp"

namespace situla::cdi {
namespace {

constexpr const char* kDriverProc = "/proc/driver/nvidia";
constexpr const char* kParams = "/proc/driver/nvidia/params";
constexpr const char* kProfile = "/etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";

enum class Vendor { other, nvidia, amd };

struct Call {
  Vendor vendor = Vendor::other;
  std::string_view command;  ///< "create-symlinks"; empty: none
  const std::vector<std::string>& arguments;

  /// Of "--name value" and "--name=value", every one.
  [[nodiscard]] std::vector<std::string> values(std::string_view name) const {
    std::vector<std::string> found;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string_view argument = arguments[i];
      if (argument == name && i + 1 < arguments.size()) found.push_back(arguments[++i]);
      if (argument.starts_with(name) && argument.substr(name.size()).starts_with('='))
        found.emplace_back(argument.substr(name.size() + 1));
    }
    return found;
  }
  [[nodiscard]] std::string value(std::string_view name, std::string_view otherwise) const {
    const auto all = values(name);
    return all.empty() ? std::string(otherwise) : all.back();
  }
};

/// nvidia-cdi-hook, nvidia-ctk, also with a prefix or suffix of a package (nvidia-container-toolkit.nvidia-cdi-hook).
Vendor vendor_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const auto has = [&](std::string_view word) { return name.find(word) != std::string_view::npos; };
  if (!has("cdi-hook") && !has("ctk")) return Vendor::other;
  return has("nvidia") ? Vendor::nvidia : has("amd") ? Vendor::amd : Vendor::other;
}

/// The first word after the program that is neither an option nor the group "hook" of nvidia-ctk.
std::string_view command_of(const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i)
    if (!arguments[i].starts_with('-') && arguments[i] != "hook") return arguments[i];
  return {};
}

Call call_of(const Hook& hook) {
  return {vendor_of(hook.path), command_of(hook.arguments), hook.arguments};
}

/// Adds to edits that are this hook's alone.
using Action = Result<void> (*)(const Call&, const CdiContext&, ContainerEdits&, LogSink&);

Result<void> create_links(const Call& call, const CdiContext&, ContainerEdits& edits, LogSink&) {
  for (const std::string& link : call.values("--link")) {
    const size_t middle = link.find("::");
    if (middle == 0 || middle == std::string::npos || middle + 2 == link.size())
      return fail(ErrorKind::corrupt, "create-symlinks: \"" + printable(link) + "\" is not TARGET::LINK");
    std::string path = link.substr(middle + 2);
    if (path.front() != '/') path.insert(0, "/");
    edits.files.push_back({FileChange::Kind::link, std::move(path), link.substr(0, middle), 0777});
  }
  return {};
}

Result<void> use_folders(const Call& call, const CdiContext&, ContainerEdits& edits, LogSink&) {
  edits.libraries.directories = call.values("--folder");
  return {};
}

Result<void> use_compat(const Call& call, const CdiContext& context, ContainerEdits& edits, LogSink& log) {
  if (!context.settings.cuda_compat) return {};
  const auto directory =
      forward_compat_directory(context.root, call.value("--cuda-compat-container-root", kCudaCompatDirectory),
                               call.value("--host-driver-version", ""), call.value("--host-cuda-version", ""));
  if (!directory) {
    log.warning("leaving the CUDA libraries of the image aside: " + directory.error().message());
    return {};
  }
  if (*directory) edits.libraries.preferred.push_back(**directory);
  return {};
}

/// One file of /proc cannot be replaced by another without a place for that one: the directory gets a cover, and
/// everything else in it is shown again.
Result<void> forbid_node_changes(const Call&, const CdiContext& context, ContainerEdits& edits, LogSink&) {
  if (!context.settings.hide_gpus) return {};  // the site wants nothing mounted on /proc
  const auto params = context.host.devices.read_file(kParams);
  if (!params) return {};  // no driver, nothing to forbid
  const std::string changed = nvidia::without_node_changes(*params);
  if (changed == *params) return {};
  TRY_ASSIGN(const UniqueFd directory, context.host.devices.open_at(kDriverProc, O_RDONLY | O_DIRECTORY));
  TRY_ASSIGN(auto names, list_directory(directory.get(), kDriverProc));
  std::sort(names.begin(), names.end());
  // Where the container's /proc knows no such driver (device_root), nothing can be made in it.
  add_step(edits, {.kind = StepKind::cover,
                   .target = context.root.exists(kDriverProc) ? kDriverProc : "/proc/driver",
                   .flags = {.no_suid = true, .no_dev = true, .no_exec = true},
                   .parameters = {{"mode", "0555"}}});
  for (const std::string& name : names) {
    if (name == "params") continue;
    const std::string path = std::string(kDriverProc) + "/" + name;
    add_step(edits, {.kind = StepKind::host_file,
                     .source = HostRoots::host_path(context.host.device_path, path),
                     .target = path,
                     .recursive = true,
                     .on_failure = OnFailure::warn,
                     .flags = {.read_only = true, .no_suid = true, .no_dev = true, .no_exec = true}});
  }
  edits.files.push_back({FileChange::Kind::write, kParams, changed, 0444});
  return {};
}

Result<void> nothing(const Call&, const CdiContext&, ContainerEdits&, LogSink&) {
  return {};
}

struct Command {
  std::string_view name;
  Action action;
};

constexpr std::array<Command, 7> kCommands = {{{"create-symlinks", create_links},
                                               {"update-ldcache", use_folders},
                                               {"create-soname-symlinks", use_folders},
                                               {"enable-cuda-compat", use_compat},
                                               {"disable-device-node-modification", forbid_node_changes},
                                               {"update-application-profile", nothing},  // add_application_profile()
                                               {"chmod", nothing}}};  // of directories that are readable anyway

}  // namespace

Result<bool> add_native_hook(const Hook& hook, const std::string& file, const CdiContext& context,
                             ContainerEdits& edits, LogSink& log) {
  const Call call = call_of(hook);
  const auto known = std::find_if(kCommands.begin(), kCommands.end(),
                                  [&](const Command& command) { return command.name == call.command; });
  if (call.vendor == Vendor::other) return false;
  if (call.vendor == Vendor::amd && call.command != "create-symlinks") return false;
  if (known == kCommands.end()) {
    log.warning(file + ": leaving out the hook " + printable(join(hook.arguments, " ")) + ": not known here");
    return true;
  }
  ContainerEdits more;
  TRY_CONTEXT(file, known->action(call, context, more, log));
  for (MountStep& step : more.mounts) step.origin = file;
  append(edits, std::move(more));
  return true;
}

bool wants_application_profile(const Hook& hook) {
  const Call call = call_of(hook);
  return call.vendor == Vendor::nvidia && call.command == "update-application-profile";
}

void add_application_profile(ContainerEdits& edits) {
  std::vector<uint32_t> minors;
  constexpr std::string_view kPrefix = "/dev/nvidia";
  for (const MountStep& step : edits.mounts)
    if (step.number && step.target.starts_with(kPrefix) &&
        parse_unsigned(std::string_view(step.target).substr(kPrefix.size())))
      minors.push_back(step.number->minor);
  ContainerEdits more;
  more.files.push_back({FileChange::Kind::write, kProfile, nvidia::application_profile(minors), 0444});
  append(edits, std::move(more));
}

}  // namespace situla::cdi
