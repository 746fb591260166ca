#include "hooks/run/login.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kDefaultShell = "/bin/sh";
// The reference is linked with musl: its _PATH_DEFPATH and _PATH_STDPATH.
constexpr std::string_view kUserPath = "/usr/local/bin:/bin:/usr/bin";
constexpr std::string_view kRootPath = "/bin:/usr/bin:/sbin:/usr/sbin";

/// Shells that can read /etc/rc. Another one (tcsh, fish, nologin) would only fail on it, so /bin/sh is taken instead.
constexpr std::array<std::string_view, 8> kRcShells = {"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "busybox"};

constexpr std::array<std::string_view, 14> kLocaleNames = {
    "LANG",        "LANGUAGE", "LC_CTYPE", "LC_NUMERIC", "LC_TIME",      "LC_COLLATE",     "LC_MONETARY",
    "LC_MESSAGES", "LC_PAPER", "LC_NAME",  "LC_ADDRESS", "LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION"};

using Settings = std::map<std::string, std::string, std::less<>>;

/// NAME, then blanks, '=' or quotes, then one word. The last definition wins.
Settings read_settings(const RootDir& root, const std::string& path) {
  Settings settings;
  const auto content = root.read_file(path);
  if (!content) return settings;
  for (const std::string_view raw : split(*content, '\n')) {
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    const size_t name_end = line.find_first_of(" \t=");
    if (name_end == std::string_view::npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"=", name_end);
    if (begin == std::string_view::npos) continue;
    const std::string_view rest = line.substr(begin);
    settings[std::string(line.substr(0, name_end))] = rest.substr(0, rest.find_first_of(" \t\""));
  }
  return settings;
}

std::string_view value_of(const Settings& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string_view() : std::string_view(found->second);
}

bool enabled(const Settings& settings, std::string_view name) {
  const std::string value = to_lower(value_of(settings, name));
  return value == "yes" || value == "true";
}

std::string_view without_prefix(std::string_view text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

struct PasswdLine {
  std::string name, group, home, shell;  ///< group: its number
};

std::optional<PasswdLine> find_account(std::string_view database, uid_t uid) {
  const std::string number = std::to_string(uid);
  for (const std::string_view line : split(database, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() >= 7 && fields[2] == number)
      return PasswdLine{std::string(fields[0]), std::string(fields[3]), std::string(fields[5]),
                        std::string(trim(fields[6]))};
  }
  return std::nullopt;
}

void set_absent(Environment& environment, std::string_view name, std::string_view value) {
  if (!value.empty() && !environment.has(name)) environment.set(name, value);
}

void set_time_zone(Environment& environment, const RootDir& root, const Settings& settings) {
  const std::string_view setting = value_of(settings, "ENV_TZ");
  if (setting.empty()) return;
  std::string zone(setting);
  if (zone.front() == '/') {
    const auto content = root.read_file(zone);
    if (!content) return;
    zone = content->substr(0, content->find('\n'));
  }
  set_absent(environment, "TZ", without_prefix(zone, "TZ="));
}

void set_mail(Environment& environment, const Settings& settings) {
  if (!enabled(settings, "MAIL_CHECK_ENAB")) return;
  if (const std::string_view directory = value_of(settings, "MAIL_DIR"); !directory.empty())
    set_absent(environment, "MAIL", std::string(directory) + "/" + environment.get_or("USER", ""));
  if (const std::string_view file = value_of(settings, "MAIL_FILE"); !file.empty())
    set_absent(environment, "MAIL", environment.get_or("HOME", "") + "/" + std::string(file));
}

void set_variables(Environment& environment, const RootDir& root, const Settings& settings,
                   const LoginIdentity& identity) {
  const std::string database = root.read_file("/etc/passwd").value_or("");
  const std::optional<PasswdLine> inside = find_account(database, identity.inside);
  const std::optional<PasswdLine> outside = find_account(database, identity.outside);
  set_absent(environment, "TERM", "dumb");
  if (inside) {
    set_absent(environment, "HOME", inside->home);
    set_absent(environment, "SHELL", inside->shell);
    set_absent(environment, "USER", inside->name);
  }
  if (outside) set_absent(environment, "LOGNAME", outside->name);
  const bool is_root = identity.inside == 0;
  const std::string_view path = without_prefix(value_of(settings, is_root ? "ENV_SUPATH" : "ENV_PATH"), "PATH=");
  set_absent(environment, "PATH", path.empty() ? (is_root ? kRootPath : kUserPath) : path);
  set_mail(environment, settings);
  set_time_zone(environment, root, settings);
  for (const auto& [name, value] : read_settings(root, "/etc/locale.conf"))
    if (std::find(kLocaleNames.begin(), kLocaleNames.end(), name) != kLocaleNames.end())
      set_absent(environment, name, value);
}

bool is_executable(const RootDir& root, std::string_view path) {
  if (!path.starts_with('/')) return false;
  const auto fd = root.resolve(path);
  struct stat status {};
  return fd && fstat(fd->get(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 0111U) != 0;
}

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

std::string choose_shell(const RootDir& root, const Environment& environment, std::string_view fake_shell) {
  for (const std::string& candidate : {std::string(fake_shell), environment.get_or("SHELL", "")}) {
    const bool reads_rc = std::find(kRcShells.begin(), kRcShells.end(), base_name(candidate)) != kRcShells.end();
    if (reads_rc && is_executable(root, candidate)) return candidate;
  }
  return is_executable(root, kDefaultShell) ? std::string(kDefaultShell) : std::string();
}

std::optional<mode_t> umask_of(const Settings& settings) {
  const std::string_view text = value_of(settings, "UMASK");
  unsigned mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask, 8);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || mask > 0777) return std::nullopt;
  return static_cast<mode_t>(mask);
}

/// With a group of its own, which has its name and its number.
bool has_private_group(const RootDir& root, uid_t uid) {
  const auto account = find_account(root.read_file("/etc/passwd").value_or(""), uid);
  const std::string number = std::to_string(uid);
  if (uid == 0 || !account || account->group != number) return false;
  const std::string groups = root.read_file("/etc/group").value_or("");
  for (const std::string_view line : split(groups, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() >= 3 && fields[2] == number) return fields[0] == account->name;
  }
  return false;
}

mode_t current_umask() {
  const mode_t mask = umask(0);
  (void)umask(mask);
  return mask;
}

/// login.defs(5). What a user with a private group lets himself do, he lets it do.
std::optional<mode_t> login_umask(const RootDir& root, const Settings& settings, uid_t uid) {
  const auto mask = umask_of(settings);
  if (!enabled(settings, "USERGROUPS_ENAB") || !has_private_group(root, uid)) return mask;
  const mode_t before = mask ? *mask : current_umask();
  return (before & ~mode_t{070}) | ((before >> 3U) & mode_t{070});
}

}  // namespace

Login prepare_login(const RootDir& root, const Environment& environment, const LoginIdentity& identity, bool login) {
  Login result;
  result.environment = environment;
  result.directory = "/";
  std::string fake_shell;
  if (login) {
    const Settings settings = read_settings(root, "/etc/login.defs");
    set_variables(result.environment, root, settings, identity);
    fake_shell = value_of(settings, "FAKE_SHELL");
    result.umask = login_umask(root, settings, identity.inside);
    const std::string home = result.environment.get_or("HOME", "");
    if (home.starts_with('/') && root.open_at(home, O_RDONLY | O_DIRECTORY)) result.directory = home;
  }
  result.shell = choose_shell(root, result.environment, fake_shell);
  result.argv0 = (login ? "-" : "") + base_name(result.shell);
  return result;
}

}  // namespace situla
