#include "hooks/inject/hook.hpp"

#include <array>
#include <utility>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kDatabaseBuffer = size_t{64} << 10U;

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"/", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

Result<void> replace_by_link(const FileChange& change, const RootDir& root) {
  const auto [directory, name] = split_path(change.path);
  TRY_ASSIGN(const UniqueFd parent, root.make_directories(directory, 0755));
  if (unlinkat(parent.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return fail_errno(errno, "replace " + change.path);
  if (symlinkat(change.content.c_str(), parent.get(), name.c_str()) != 0)
    return fail_errno(errno, "link " + change.path);
  return {};
}

Result<void> make_directory(const FileChange& change, const RootDir& root) {
  if (root.exists(change.path)) return {};
  const auto [directory, name] = split_path(change.path);
  TRY_ASSIGN(const UniqueFd parent, root.make_directories(directory, 0755));
  if (mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(errno, "create directory " + change.path);
  if (fchmodat(parent.get(), name.c_str(), change.mode, 0) != 0)
    return fail_errno(errno, "set the mode of " + change.path);
  return {};
}

Result<void> write(const FileChange& change, const RootDir& root) {
  TRY(root.make_directories(split_path(change.path).first, 0755));
  return root.write_file(change.path, change.content, change.mode);
}

Result<void> apply_one(const FileChange& change, const RootDir& root) {
  switch (change.kind) {
    case FileChange::Kind::write:
      return write(change, root);
    case FileChange::Kind::link:
      return replace_by_link(change, root);
    case FileChange::Kind::directory:
      return make_directory(change, root);
  }
  return {};
}

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
  static constexpr std::array<Entry, 11> kHooks = {{{BuiltInHook::aptfix, "aptfix", aptfix_hook},
                                                    {BuiltInHook::cgroups, "cgroups", cgroups_hook},
                                                    {BuiltInHook::devices, "devices", devices_hook},
                                                    {BuiltInHook::home, "home", home_hook},
                                                    {BuiltInHook::localtime, "localtime", localtime_hook},
                                                    {BuiltInHook::mig_config, "mig-config", mig_config_hook},
                                                    {BuiltInHook::shadow, "shadow", shadow_hook},
                                                    {BuiltInHook::sharp, "sharp", sharp_hook},
                                                    {BuiltInHook::slurm_pmi, "slurm-pmi", slurm_pmi_hook},
                                                    {BuiltInHook::slurm_pmix, "slurm-pmix", slurm_pmix_hook},
                                                    {BuiltInHook::slurm_pytorch, "slurm-pytorch", slurm_pytorch_hook}}};
  for (const Entry& entry : kHooks) {
    if (entry.hook != hook) continue;
    auto proposal = entry.run(context);
    if (!proposal) return fail(std::move(proposal).error().with_context(std::string("built-in hook ") + entry.name));
    return proposal;
  }
  return Proposal();
}

Result<void> apply_file_changes(const std::vector<FileChange>& changes, const RootDir& root, LogSink& log) {
  for (const FileChange& change : changes) {
    auto done = apply_one(change, root);
    if (done) continue;
    if (done.error().errnum() != EBUSY) return done;
    log.warning("leaving " + change.path + " as it is: something is mounted there");
  }
  return {};
}

}  // namespace situla
