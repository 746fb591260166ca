#include <array>
#include <cstdio>
#include <filesystem>

#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/users.hpp"
#include "hooks/doctor/checks.hpp"

namespace situla::doctor {
namespace {

constexpr size_t kMostParts = 16;  ///< directories of the store that are looked at

std::string permissions(mode_t mode) {
  std::array<char, 8> text{};
  snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

/// The first directory in the store that the importer could not use, or others could.
std::string foreign_part(const std::string& store, uid_t owner) {
  std::vector<std::string> directories = {store};
  for (size_t i = 0; i < directories.size() && i < kMostParts; ++i) {
    const auto names = list_directory(directories[i]);
    for (const std::string& name : names ? *names : std::vector<std::string>{}) {
      std::string path = (directories[i] + "/").append(name);
      struct stat status {};
      if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
      if (status.st_uid != owner || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return path;
      directories.push_back(std::move(path));
    }
  }
  return "";
}

/// What a node without a store does without.
constexpr const char* kNoStore =
    ": each user imports his own images, into ENROOT_CACHE_PATH, and FUSE serves them instead of the kernel";

std::string no_user(const std::string& name) {
  return "there is no user \"" + name + "\"";
}

bool is_missing(const std::string& user) {
  const Result<Identity> identity = identity_of_user(user);
  return !identity && identity.error().kind() == ErrorKind::not_found;
}

}  // namespace

std::optional<std::string> find_program(const std::string& name, const Environment& environment) {
  const std::string places = ":/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
  std::string program = situla::find_program(name, environment.get_or("PATH", "") + places);
  return program.empty() ? std::nullopt : std::optional(std::move(program));
}

Check check_site_config(const Places& places, SiteConfig& config) {
  constexpr const char* kName = "site-configuration";
  const std::string& path = places.site_config;
  const Result<SiteConfig> loaded = SiteConfig::load(path);
  if (!loaded) return check_of(kName, State::fail, loaded.error(), "correct " + path);
  config = *loaded;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {kName, State::ok, path + " is not there; the defaults hold", ""};
  // What runs as the job's user reads it, too: devices, mirrors.
  if ((status.st_mode & S_IROTH) != 0) return {kName, State::ok, path, ""};
  return {kName, State::fail, path + " has mode " + permissions(status.st_mode) + ": users cannot read it",
          "chmod 644 " + shell_quote(path)};
}

Check check_configuration_directory(const Places& places) {
  constexpr const char* kName = "configuration-directory";
  const std::string path = std::filesystem::path(places.site_config).parent_path().string();
  const std::string quoted = shell_quote(path);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {kName, State::ok, path + " is not there; the defaults hold", ""};
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {kName, State::fail, path + " can be written by others than root",
            "chown root: " + quoted + " && chmod go-w " + quoted};
  if ((status.st_mode & S_IXOTH) != 0) return {kName, State::ok, path, ""};
  return {kName, State::fail, path + " has mode " + permissions(status.st_mode) + ": users cannot read what is in it",
          "chmod 755 " + quoted};
}

/// `home`: the option of useradd that says where.
Check check_user(const char* name, const std::string& user, const std::string& home) {
  const Result<Identity> identity = identity_of_user(user);
  if (identity) {
    const std::string uid = std::to_string(identity->uid);
    return {name, State::ok, user + " (uid " + uid + ")", "", {{"user", user}, {"uid", uid}}};
  }
  return {name, State::fail, no_user(user),
          "useradd --system --no-create-home " + home + "--shell /usr/sbin/nologin " + user};
}

Check check_service_user(const SiteConfig& config) {
  Check check = check_user("service-user", config.service_user, "--home-dir /var/lib/situla ");
  if (!is_missing(config.service_user)) return check;
  check.state = State::warn;
  check.found += kNoStore;
  return check;
}

Check check_import_user(const SiteConfig& config) {
  if (is_missing(config.service_user))
    return {"import-user", State::info, "not needed: " + no_user(config.service_user), ""};
  const Result<Identity> identity = identity_of_user(config.import_user);
  const Result<Identity> store = identity_of_user(config.service_user);
  if (!identity || !store || store->uid != identity->uid) return check_user("import-user", config.import_user, "");
  return {"import-user", State::fail, config.import_user + " owns the store: importers could change images",
          "name another account as import_user in situla.toml"};
}

Check check_store(const SiteConfig& config) {
  const std::string& path = config.store_path;
  struct stat status {};
  if (is_missing(config.service_user))
    return {"store", State::info, path + " is not used: " + no_user(config.service_user), ""};
  const std::string make =
      "install -d -m 0700 -o " + config.service_user + " -g " + config.service_user + " " + shell_quote(path);
  if (stat(path.c_str(), &status) != 0) {
    if (errno == EACCES && geteuid() == 0)
      return {"store", State::info, path + ": root has no rights there; what its owner finds has lines of its own", ""};
    return {"store", State::warn, path + " does not exist" + kNoStore, make};
  }
  const Result<Identity> owner = identity_of_user(config.service_user);
  if (owner && status.st_uid != owner->uid)
    return {"store", State::fail, path + " does not belong to " + config.service_user, make};
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return {"store", State::fail, path + " can be entered by others than its owner", "chmod 700 " + shell_quote(path)};
  if (owner)
    if (const std::string part = foreign_part(path, owner->uid); !part.empty())
      return {"store", State::fail, part + " does not belong to " + config.service_user + ", or others can write to it",
              "chown -R " + config.service_user + ": " + shell_quote(part) + " && chmod go-w " + shell_quote(part)};
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) == 0 && (space.f_flag & ST_RDONLY) != 0)
    return {"store", State::warn, path + " is on a file system that is mounted read-only" + kNoStore,
            "remount it writable, or choose another store_path in situla.toml"};
  Check check{"store", State::ok, path, ""};
  add_disk(check, path, Use::store);
  return check;
}

Check check_runtime_directory(const Places& places) {
  constexpr const char* kName = "runtime-directory";
  struct stat status {};
  const std::string& path = places.runtime;
  if (lstat(path.c_str(), &status) != 0) return {kName, State::ok, path + " is made by the first job", ""};
  const std::string fix = "install -d -m 0755 -o root -g root " + shell_quote(path);
  if (!S_ISDIR(status.st_mode))
    return {kName, State::fail, path + " is no directory", "rm " + shell_quote(path) + " && " + fix};
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {kName, State::fail,
            path + " can be written by others than root (uid " + std::to_string(status.st_uid) + ", mode " +
                permissions(status.st_mode) + ")",
            fix};
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0 || (space.f_flag & ST_RDONLY) == 0) return {kName, State::ok, path, ""};
  return {kName, State::fail, path + " is on a file system that is mounted read-only",
          "remount it writable: jobs keep their mounts there"};
}

Check check_programs(const Places& places) {
  std::vector<std::string> missing;
  for (const char* name : {"situla-broker", "situla-builder", "situla-importer"})
    if (access((places.libexec + "/" + name).c_str(), X_OK) != 0) missing.emplace_back(name);
  if (missing.empty()) return {"programs", State::ok, places.libexec, ""};
  return {"programs", State::fail, places.libexec + " lacks " + join(missing, ", "),
          "install Situla completely: its package again, or cmake --install build/release"};
}

Check check_shell() {
  if (access("/bin/bash", X_OK) == 0) return {"bash", State::ok, "/bin/bash", ""};
  return {"bash", State::warn, "/bin/bash is missing", "site hooks and values with $(...) in enroot.conf need it"};
}

}  // namespace situla::doctor
