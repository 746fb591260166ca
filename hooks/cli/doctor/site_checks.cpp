#include <filesystem>

#include <pwd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "hooks/cli/doctor/checks.hpp"

namespace situla::doctor {
namespace {

constexpr uint64_t kLowSpace = uint64_t{20} << 30U;  ///< bytes; one large image and its successor

/// The lines of a plugstack.conf and of what it includes, comments taken out. In an included name only the file part
/// may have a star.
void collect_plugstack(const std::filesystem::path& file, std::vector<std::string>& lines, int depth = 0) {
  const Result<std::string> content = read_file(file.string());
  if (!content || depth > 8) return;
  for (std::string_view line : split(*content, '\n')) {
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<std::string_view> words = split_words(line);
    if (words.size() != 2 || to_lower(words[0]) != "include") {
      lines.emplace_back(line);
      continue;
    }
    std::filesystem::path pattern(words[1]);
    if (pattern.is_relative()) pattern = file.parent_path() / pattern;
    if (pattern.filename().string().find('*') == std::string::npos) {
      collect_plugstack(pattern, lines, depth + 1);
      continue;
    }
    std::error_code error;
    for (std::filesystem::directory_iterator it(pattern.parent_path(), error), end; !error && it != end;
         it.increment(error))
      if (it->path().extension() == pattern.extension()) collect_plugstack(it->path(), lines, depth + 1);
  }
}

/// PlugStackConfig of slurm.conf, or plugstack.conf beside it.
std::string plugstack_path(const std::string& slurm_conf) {
  if (const Result<std::string> content = read_file(slurm_conf))
    for (std::string_view line : split(*content, '\n')) {
      const auto setting = cut(trim(line.substr(0, line.find('#'))), '=');
      if (setting && to_lower(trim(setting->first)) == "plugstackconfig") return std::string(trim(setting->second));
    }
  return (std::filesystem::path(slurm_conf).parent_path() / "plugstack.conf").string();
}

std::string slurm_conf_path(const Places& places, const Environment& environment) {
  const std::string named = places.slurm_conf.empty() ? environment.get_or("SLURM_CONF", "") : places.slurm_conf;
  return named.empty() ? "/etc/slurm/slurm.conf" : named;
}

}  // namespace

std::optional<std::string> find_program(const std::string& name, const Environment& environment) {
  const std::string path =
      environment.get_or("PATH", "") + ":/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
  for (const std::string_view directory : split_nonempty(path, ':')) {
    std::string candidate = std::string(directory) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

Check check_site_config(const Places& places, SiteConfig& config) {
  const Result<SiteConfig> loaded = SiteConfig::load(places.site_config);
  if (!loaded)
    return {"site-configuration", State::fail, loaded.error().message(),
            loaded.error().hint().empty() ? "correct " + places.site_config : loaded.error().hint()};
  config = *loaded;
  const bool there = access(places.site_config.c_str(), F_OK) == 0;
  return {"site-configuration", State::ok, places.site_config + (there ? "" : " is not there; the defaults hold"), ""};
}

Check check_service_user(const SiteConfig& config) {
  const Result<Identity> identity = identity_of_user(config.service_user);
  if (!identity)
    return {"service-user", State::fail, "there is no user \"" + config.service_user + "\"",
            "useradd --system --no-create-home --shell /usr/sbin/nologin " + config.service_user};
  return {"service-user", State::ok, config.service_user + " (uid " + std::to_string(identity->uid) + ")", ""};
}

Check check_store(const SiteConfig& config) {
  const std::string& path = config.store_path;
  struct stat status {};
  const std::string make =
      "install -d -m 0755 -o " + config.service_user + " -g " + config.service_user + " " + shell_quote(path);
  if (stat(path.c_str(), &status) != 0) return {"store", State::fail, path + " does not exist", make};
  const Result<Identity> owner = identity_of_user(config.service_user);
  if (owner && status.st_uid != owner->uid)
    return {"store", State::fail, path + " does not belong to " + config.service_user, make};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {"store", State::fail, path + " can be written by others than its owner", "chmod go-w " + shell_quote(path)};
  struct statvfs space {};
  if (statvfs(path.c_str(), &space) != 0)
    return {"store", State::fail, path + " cannot be examined", "look at its file system"};
  const uint64_t bytes = uint64_t{space.f_bavail} * space.f_frsize;
  Check check{"store", State::ok, path + ", " + format_size(bytes) + " free", ""};
  if (bytes < kLowSpace) {
    check.state = State::warn;
    check.fix = "an image can take 10 GiB and more; put the store on a larger disk (store_path)";
  }
  return check;
}

Check check_runtime_directory() {
  struct stat status {};
  const std::string path = SITULA_RUNTIME_DIR;
  if (stat(path.c_str(), &status) != 0) return {"runtime-directory", State::ok, path + " is made by the first job", ""};
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {"runtime-directory", State::fail, path + " can be written by others than root",
            "chown root " + path + " && chmod go-w " + path};
  return {"runtime-directory", State::ok, path, ""};
}

Check check_programs(const Places& places) {
  std::vector<std::string> missing;
  for (const char* name : {"situla-broker", "situla-builder", "situla-importer"})
    if (access((places.libexec + "/" + name).c_str(), X_OK) != 0) missing.emplace_back(name);
  if (missing.empty()) return {"programs", State::ok, places.libexec, ""};
  return {"programs", State::fail, places.libexec + " lacks " + join(missing, ", "),
          "install Situla completely: cmake --install build/release"};
}

Check check_shell() {
  if (access("/bin/bash", X_OK) == 0) return {"bash", State::ok, "/bin/bash", ""};
  return {"bash", State::warn, "/bin/bash is missing", "site hooks and values with $(...) in enroot.conf need it"};
}

Check check_slurm_plugin(const Places& places) {
  if (access(places.plugin.c_str(), R_OK) == 0) return {"slurm-plugin", State::ok, places.plugin, ""};
  return {"slurm-plugin", State::fail, places.plugin + " is missing",
          "install Situla completely: cmake --install build/release"};
}

Check check_plugstack(const Places& places, const Environment& environment) {
  const std::string slurm_conf = slurm_conf_path(places, environment);
  if (access(slurm_conf.c_str(), F_OK) != 0)
    return {"plugstack", State::warn, "there is no " + slurm_conf, "without Slurm only the situla command works here"};
  const std::string plugstack = plugstack_path(slurm_conf);
  std::vector<std::string> lines;
  collect_plugstack(plugstack, lines);
  bool found = false;
  bool pyxis = false;
  for (const std::string& line : lines) {
    found = found || line.find("spank_situla.so") != std::string::npos;
    pyxis = pyxis || line.find("spank_pyxis.so") != std::string::npos;
  }
  if (!found) {
    return {"plugstack", State::fail, plugstack + " does not load spank_situla.so",
            "add the line: required " + places.plugin};
  }
  if (pyxis)
    return {"plugstack", State::fail, plugstack + " loads pyxis as well; both define --container-image",
            "remove the line of spank_pyxis.so"};
  return {"plugstack", State::ok, plugstack, ""};
}

bool plugstack_wants_fuse(const Places& places, const Environment& environment) {
  std::vector<std::string> lines;
  collect_plugstack(plugstack_path(slurm_conf_path(places, environment)), lines);
  bool wanted = false;
  for (const std::string& line : lines) {
    if (line.find("spank_situla.so") == std::string::npos) continue;
    for (const std::string_view word : split_words(line)) {
      const auto setting = cut(word, '=');
      if (!setting || setting->first != "use_squashfuse") continue;
      wanted =
          setting->second == "1" || setting->second == "true" || setting->second == "yes" || setting->second == "y";
    }
  }
  return wanted;
}

}  // namespace situla::doctor
