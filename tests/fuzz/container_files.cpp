#include <array>
#include <cstdlib>
#include <set>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/mount_table.hpp"
#include "hooks/inject/hooks.hpp"
#include "hooks/inject/ldcache/linker_config.hpp"
#include "hooks/run/login.hpp"
#include "hooks/run/rc_script.hpp"
#include "tests/fuzz/place.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

constexpr std::array<const char*, 8> kFiles = {"passwd",     "group",       "login.defs", "default/useradd",
                                               "ld.so.conf", "locale.conf", "zone",       "ld.so.conf.d/own.conf"};

/// The root of a container; its files, and in them, one after the other, what the input has between lines.
const RootDir& root_with(std::string_view bytes) {
  static const Place place;
  static const RootDir root = [] {
    for (const char* directory : {"etc", "etc/default", "etc/ld.so.conf.d", "etc/skel", "bin"})
      if (mkdir((place / directory).c_str(), 0755) != 0) std::abort();
    write_whole(place / "bin/sh", "");
    if (chmod((place / "bin/sh").c_str(), 0755) != 0) std::abort();
    write_whole(place / "etc/skel/.profile", "# empty\n");
    return RootDir::open(place.path()).value();
  }();
  constexpr std::string_view kBetween = "\nnext file\n";
  for (const char* file : kFiles) {
    const size_t end = bytes.find(kBetween);
    write_whole(place / ("etc/" + std::string(file)), bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + kBetween.size());
  }
  return root;
}

/// The database has our lines first, no other one with their names, and nobody called _apt.
void check_database(std::string_view content, const std::string& user) {
  const auto lines = split(content, '\n');
  const std::set<std::string_view> ours = {"root", "nobody", "nogroup", user};
  if (lines.size() < 4 || !lines[0].starts_with("root:") || !lines[2].starts_with(user + ":")) std::abort();
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view name = lines[i].substr(0, lines[i].find(':'));
    if (name == "_apt" || (i > 2 && (name == lines[0].substr(0, 4) || name == user))) std::abort();
  }
}

void check_accounts(const RootDir& root) {
  const Environment host, container;
  const UserEntry user{"ada", "Ada L.", "/home/ada", "/bin/nosh", "users", 1000, 100};
  NullLog log;
  const auto edits = shadow_hook(HookContext{root, root, host, container, user, false, false, false, false, log});
  if (!edits) return;
  for (const FileChange& file : edits->files) {
    if (file.path == "/etc/passwd") check_database(file.content, "ada");
    if (file.path == "/etc/group") check_database(file.content, "users");
  }
}

}  // namespace

/// Text files of an image that are read when a container starts, and the start script.
void situla::fuzz(std::string_view bytes) {
  const RootDir& root = root_with(bytes);
  check_accounts(root);
  const Login login = prepare_login(root, Environment(), {1000, 1000}, true);
  if (login.shell != "/bin/sh" || login.argv0 != "-sh" || login.umask.value_or(0) > 0777) std::abort();
  for (const auto& [name, value] : login.environment.entries())
    if (!is_variable_name(name) || value.find_first_of(std::string_view("\n\0", 2)) != std::string::npos) std::abort();
  const auto directories = configured_directories(root);
  std::set<std::string> once(directories.begin(), directories.end());
  if (once.size() != directories.size()) std::abort();
  for (const std::string& directory : directories)
    if (!directory.starts_with('/') || directory.find('\n') != std::string::npos) std::abort();

  if (const auto directory = rc_directory(bytes); directory && directory->empty()) std::abort();
  if (const auto script = redirect_rc_local(bytes, "/hook"); script && script->find("/hook") == std::string::npos)
    std::abort();
  // What another process mounted may have any name.
  for (const MountRecord& mount : parse_mount_table(bytes))
    if (mount.type.empty() || mount.device.empty()) std::abort();
}
