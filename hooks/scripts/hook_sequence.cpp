#include "hooks/scripts/hook_sequence.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMaxHookScript = size_t{1} << 20U;

struct NamedStep {
  std::string name;
  HookStep step;
};

bool is_executable(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// A link to /dev/null, as systemd has them: this one shall not run. It does not make a hooks.d enroot's.
bool is_switched_off(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error) == "/dev/null";
}

HookStep step_for(const std::string& directory, const std::string& name, std::span<const KnownScript> known) {
  HookStep step;
  const std::string path = directory + "/" + name;
  if (const auto content = read_file(path, kMaxHookScript)) step.built_in = built_in_for(name, *content, known);
  if (!step.built_in) step.script = path;
  return step;
}

/// The standard hooks that no script stands for.
std::vector<NamedStep> standard_steps() {
  std::vector<NamedStep> steps;
  for (const auto& [name, hook] : standard_hooks()) steps.push_back({std::string(name), {hook, ""}});
  return steps;
}

/// Those who bring devices, and the one that decides a variable of theirs.
bool is_about_devices(const HookStep& step) {
  return step.built_in == BuiltInHook::mig_config || step.built_in == BuiltInHook::nvidia ||
         step.built_in == BuiltInHook::mellanox || step.built_in == BuiltInHook::drm ||
         step.built_in == BuiltInHook::fabric || step.built_in == BuiltInHook::wanted_devices;
}

}  // namespace

Result<std::vector<HookStep>> hook_sequence(const EnrootConfig& config, HookUse use,
                                            std::span<const KnownScript> known) {
  const std::string site = config.sysconf_path() + "/hooks.d", user = config.config_path() + "/hooks.d";
  TRY_ASSIGN(std::vector<std::string> site_names, names_with_suffix(site, ".sh"));
  std::vector<NamedStep> standard = standard_steps();
  std::erase_if(standard, [&](const NamedStep& step) { return is_switched_off(site + "/" + step.name); });
  std::erase_if(site_names, [&](const std::string& name) { return is_switched_off(site + "/" + name); });
  const bool of_enroot = std::any_of(site_names.begin(), site_names.end(), is_standard_script);
  std::vector<NamedStep> named = of_enroot ? std::vector<NamedStep>() : std::move(standard);
  for (const std::string& name : site_names)
    if (is_executable(site + "/" + name)) named.push_back({name, step_for(site, name, known)});
  std::stable_sort(named.begin(), named.end(), [](const NamedStep& a, const NamedStep& b) { return a.name < b.name; });
  TRY_ASSIGN(const std::vector<std::string> user_names, names_with_suffix(user, ".sh"));
  for (const std::string& name : user_names)
    if (is_executable(user + "/" + name)) named.push_back({name, step_for(user, name, known)});

  std::vector<HookStep> steps;
  for (NamedStep& entry : named) {
    const auto repeats = [&](const HookStep& step) {
      return step.built_in && entry.step.built_in && *step.built_in == *entry.step.built_in;
    };
    if (std::none_of(steps.begin(), steps.end(), repeats)) steps.push_back(std::move(entry.step));
  }
  const auto is_pmi = [](const HookStep& step) { return step.built_in == BuiltInHook::slurm_pmi; };
  if (use == HookUse::step && std::none_of(steps.begin(), steps.end(), is_pmi))
    steps.push_back({BuiltInHook::slurm_pmix, ""});
  steps.push_back({BuiltInHook::drm, ""});
  steps.push_back({BuiltInHook::fabric, ""});
  steps.push_back({BuiltInHook::wanted_devices, ""});
  if (use == HookUse::devices) std::erase_if(steps, [](const HookStep& step) { return !is_about_devices(step); });
  return steps;
}

Result<std::vector<MountStep>> run_hooks(const std::vector<HookStep>& sequence, const HookContext& context,
                                         ScriptHost& scripts, Environment& environment, Changes& changes) {
  std::vector<MountStep> mounts;
  for (const HookStep& step : sequence) {
    if (!step.built_in) {
      changes.note_script(step.script);
      if (!changes.dry_run()) TRY(scripts.run(step.script, environment));
      continue;
    }
    TRY_ASSIGN(ContainerEdits edits, run_built_in_hook(*step.built_in, context));
    environment.merge(edits.environment);
    std::move(edits.mounts_after_hooks.begin(), edits.mounts_after_hooks.end(), std::back_inserter(mounts));
    edits.mounts_after_hooks.clear();
    TRY(changes.make(std::move(edits)));
  }
  return mounts;
}

}  // namespace situla
