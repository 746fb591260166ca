#include "hooks/inject/cdi/resolve.hpp"

#include <algorithm>
#include <utility>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "hooks/inject/cdi/spec_edits.hpp"

namespace situla {
namespace {

using cdi::Count;
using cdi::Denied;
using cdi::Hook;
using cdi::HookStage;
using cdi::Spec;
using cdi::Wish;

std::string kind_of(const std::string& name) {
  return name.substr(0, name.find('='));
}

/// What is there instead of the devices that are not.
std::string known_devices(const std::vector<std::string>& missing, const CdiRegistry& registry) {
  const auto kinds = registry.kinds();
  if (kinds.empty()) {
    return "no specification in " + join(registry.directories(), ", ") +
           "; vendors' tools write them (nvidia-ctk cdi generate, amd-ctk cdi generate)";
  }
  std::vector<std::string> parts;
  bool other_kind = false;
  std::vector<std::string> told;
  for (const std::string& name : missing) {
    const std::string kind = kind_of(name);
    const auto names = registry.names_of_kind(kind);
    if (names.empty()) other_kind = true;
    if (names.empty() || std::find(told.begin(), told.end(), kind) != told.end()) continue;
    parts.push_back("devices of " + kind + ": " + join(names, ", "));
    told.push_back(kind);
  }
  if (other_kind) parts.push_back("kinds on this node: " + join(kinds, ", "));
  return join(parts, "; ");
}

/// Broken files may be why a device is missing.
Error unresolvable(const std::vector<std::string>& missing, const CdiRegistry& registry) {
  std::string message = "unresolvable CDI devices " + join(missing, ", ");
  std::vector<const Error*> told = registry.errors_of_kind("");
  for (const std::string& name : missing)
    for (const Error* error : registry.errors_of_kind(kind_of(name)))
      if (std::find(told.begin(), told.end(), error) == told.end()) told.push_back(error);
  for (const Error* error : told) message += " (" + error->message() + ")";
  return Error(ErrorKind::not_found, std::move(message))
      .with_code(ErrorCode::cdi)
      .with_hint(known_devices(missing, registry));
}

/// Which devices of a kind have nothing that the step may not use.
std::vector<std::string> usable_devices(const std::string& kind, const CdiRegistry& registry,
                                        const CdiContext& context) {
  std::vector<std::string> usable;
  for (const std::string& name : registry.names_of_kind(kind)) {
    const CdiDevice found = registry.find(kind + "=" + name);
    const auto& nodes = found.device->edits.nodes;
    const bool all = std::all_of(nodes.begin(), nodes.end(), [&](const cdi::DeviceNode& node) {
      const auto file = context.look(node.host_path);
      return file && !file->denied;
    });
    if (all || name == "all") usable.push_back(name);
  }
  return usable;
}

class Resolver {
 public:
  Resolver(const CdiContext& context, LogSink& log) : context_(context), log_(log) {}

  Result<void> add(const CdiDevice& found, const std::string& name) {
    const Spec& spec = *found.spec;
    if (std::find(begun_.begin(), begun_.end(), &spec) == begun_.end()) {
      begun_.push_back(&spec);
      Count ignored;
      TRY(add_edits(spec.edits, {spec, spec.kind, Denied::warn}, ignored));
    }
    const bool is_all = found.device->name == "all";
    Count count;
    TRY(add_edits(found.device->edits, {spec, name, is_all ? Denied::skip : Denied::fail}, count));
    if (count.denied > 0 && count.denied == count.devices)
      log_.info(name + ": the device cgroup of this job step allows none of these devices");
    return {};
  }

  Result<ContainerEdits> finish() {
    if (application_profile_) cdi::add_application_profile(edits_);
    // CDI: a mount beneath another one comes after it.
    const auto key = [](const MountStep& step) {
      return std::pair(step.kind, step.kind == StepKind::host_file ? split_nonempty(step.target, '/').size() : 0);
    };
    std::stable_sort(edits_.mounts.begin(), edits_.mounts.end(),
                     [&](const MountStep& one, const MountStep& other) { return key(one) < key(other); });
    std::stable_sort(programs_.begin(), programs_.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    for (auto& [stage, program] : programs_) edits_.programs.push_back(std::move(program));
    return std::move(edits_);
  }

 private:
  Result<void> add_edits(const cdi::Edits& edits, const Wish& wish, Count& count) {
    for (const auto& [name, value] : edits.environment) edits_.environment.set(name, value);
    for (const cdi::DeviceNode& node : edits.nodes) TRY(cdi::add_node(node, wish, context_, edits_, count, log_));
    for (const cdi::Mount& mount : edits.mounts) TRY(cdi::add_mount(mount, wish, context_, edits_, count, log_));
    for (const Hook& hook : edits.hooks) TRY(add_hook(hook, wish));
    warn_of_the_rest(edits, wish);
    return {};
  }

  Result<void> add_hook(const Hook& hook, const Wish& wish) {
    TRY_ASSIGN(const bool done, cdi::add_native_hook(hook, wish.spec.file, context_, edits_, log_));
    if (cdi::wants_application_profile(hook)) application_profile_ = true;
    if (done) return {};
    const std::string leaving_out = wish.spec.file + ": leaving out the hook " + printable(hook.path) + ": ";
    if (hook.stage > HookStage::create_container) {
      log_.warning(leaving_out + "hooks of " + std::string(to_string(hook.stage)) + " are not run");
    } else if (!context_.settings.cdi_hooks) {
      log_.warning(leaving_out + "this site runs none (cdi_hooks in situla.toml)");
    } else {
      programs_.emplace_back(hook.stage,
                             ProgramEdit{hook.path, hook.arguments, hook.environment, hook.limit, wish.spec.file});
    }
    return {};
  }

  void warn_of_the_rest(const cdi::Edits& edits, const Wish& wish) {
    const std::string& file = wish.spec.file;
    const auto is_member = [&](gid_t group) {
      return std::find(context_.groups.begin(), context_.groups.end(), group) != context_.groups.end();
    };
    for (const uint32_t group : edits.groups)
      if (!context_.groups.empty() && !is_member(group))
        log_.warning(file + ": " + wish.name + " wants group " + std::to_string(group) +
                     ", in which the job's user is not, and nobody can be added to groups here");
    for (const std::string& device : edits.net_devices)
      log_.warning(file + ": leaving out the network interface " + printable(device) + ": moving it needs privilege");
    if (edits.intel_rdt) log_.warning(file + ": leaving out intelRdt: resctrl groups need privilege");
  }

  const CdiContext& context_;
  LogSink& log_;
  ContainerEdits edits_;
  std::vector<const Spec*> begun_;
  std::vector<std::pair<HookStage, ProgramEdit>> programs_;
  bool application_profile_ = false;
};

Result<std::vector<std::pair<std::string, CdiDevice>>> find_all(const std::vector<std::string>& names,
                                                                const CdiRegistry& registry) {
  std::vector<std::pair<std::string, CdiDevice>> found;
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (!is_device_name(name))
      return fail(Error(ErrorKind::usage, "\"" + printable(name) + "\" is no name of a device")
                      .with_code(ErrorCode::cdi)
                      .with_hint("names look like nvidia.com/gpu=0"));
    const bool again = std::any_of(found.begin(), found.end(), [&](const auto& entry) { return entry.first == name; });
    const CdiDevice device = registry.find(name);
    if (device.spec == nullptr)
      missing.push_back(name);
    else if (!again)
      found.emplace_back(name, device);
  }
  if (!missing.empty()) return fail(unresolvable(missing, registry));
  return found;
}

}  // namespace

Result<ContainerEdits> cdi_edits(const std::vector<std::string>& names, const CdiRegistry& registry,
                                 const CdiContext& context, LogSink& log) {
  TRY_ASSIGN(const auto found, find_all(names, registry));
  Resolver resolver(context, log);
  std::vector<const Error*> told;
  for (const auto& [name, device] : found) {
    for (const Error* error : registry.errors_of_kind(kind_of(name))) {
      if (std::find(told.begin(), told.end(), error) != told.end()) continue;
      told.push_back(error);
      log.warning("CDI: leaving out " + error->message());
    }
    auto added = resolver.add(device, name);
    if (added) continue;
    Error error = std::move(added).error();
    if (error.kind() != ErrorKind::denied) return fail(std::move(error).with_code(ErrorCode::cdi));
    const auto usable = usable_devices(kind_of(name), registry, context);
    return fail(std::move(error)
                    .with_code(ErrorCode::gpu_request)
                    .with_hint(usable.empty() ? "ask Slurm for it, for example with --gpus-per-task or --gres"
                                              : "of " + kind_of(name) + " this step may use: " + join(usable, ", ")));
  }
  return resolver.finish();
}

}  // namespace situla
