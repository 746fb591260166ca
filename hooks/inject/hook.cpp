#include "hooks/inject/hook.hpp"

#include <array>

#include <grp.h>
#include <pwd.h>

#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kDatabaseBuffer = size_t{64} << 10U;

}  // namespace

UserEntry look_up_user(uid_t uid, gid_t gid, const Environment& environment) {
  UserEntry user;
  user.uid = uid;
  user.gid = gid;
  std::vector<char> buffer(kDatabaseBuffer);
  passwd account{};
  passwd* found = nullptr;
  if (getpwuid_r(uid, &account, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    user.name = account.pw_name;
    user.gecos = account.pw_gecos;
    user.home = account.pw_dir;
    user.shell = account.pw_shell;
  } else {
    user.name = environment.get_or("USER", "user" + std::to_string(uid));
    user.home = environment.get_or("HOME", "/");
  }
  group entry{};
  group* found_group = nullptr;
  if (getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found_group) == 0 && found_group != nullptr)
    user.group = entry.gr_name;
  else
    user.group = "group" + std::to_string(gid);
  return user;
}

Result<Proposal> run_built_in_hook(BuiltInHook hook, const InjectContext& context) {
  struct Entry {
    BuiltInHook hook;
    const char* name;
    Result<Proposal> (*run)(const InjectContext&);
  };
  static constexpr std::array<Entry, 14> kHooks = {
      {{BuiltInHook::aptfix, "aptfix", aptfix_hook},
       {BuiltInHook::cgroups, "cgroups", cgroups_hook},
       {BuiltInHook::devices, "devices", devices_hook},
       {BuiltInHook::home, "home", home_hook},
       {BuiltInHook::localtime, "localtime", localtime_hook},
       {BuiltInHook::mellanox, "mellanox", mellanox_hook},
       {BuiltInHook::mig_config, "mig-config", mig_config_hook},
       {BuiltInHook::nvidia, "nvidia", nvidia_hook},
       {BuiltInHook::shadow, "shadow", shadow_hook},
       {BuiltInHook::sharp, "sharp", sharp_hook},
       {BuiltInHook::slurm_pmi, "slurm-pmi", slurm_pmi_hook},
       {BuiltInHook::slurm_pmix, "slurm-pmix", slurm_pmix_hook},
       {BuiltInHook::slurm_pytorch, "slurm-pytorch", slurm_pytorch_hook},
       {BuiltInHook::wanted_devices, "wanted-devices", wanted_devices_hook}}};
  for (const Entry& entry : kHooks) {
    if (entry.hook != hook) continue;
    auto proposal = entry.run(context);
    if (!proposal) return fail(std::move(proposal).error().with_context(std::string("built-in hook ") + entry.name));
    return proposal;
  }
  return Proposal();
}

}  // namespace situla
