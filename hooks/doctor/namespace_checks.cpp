#include <algorithm>
#include <array>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/probes.hpp"

namespace situla::doctor {
namespace {

constexpr uint64_t kFewNamespaces = 1024;  ///< a container needs one of each; so does every sandboxed service
constexpr const char* kRestriction = "kernel.apparmor_restrict_unprivileged_userns";

struct Limit {
  const char* name;  ///< of the sysctl
  const char* file;  ///< beneath /proc/sys
};
/// Of each user; 0 forbids them altogether.
constexpr std::array kLimits = {Limit{"user.max_user_namespaces", "user/max_user_namespaces"},
                                Limit{"user.max_mnt_namespaces", "user/max_mnt_namespaces"},
                                Limit{"user.max_cgroup_namespaces", "user/max_cgroup_namespaces"}};

std::string set_sysctl(const std::string& name, const std::string& value) {
  return "sysctl -w " + name + "=" + value + ", and the same in a file of /etc/sysctl.d";
}

bool apparmor_restricts(const Places& places) {
  return first_line(places.proc + "/sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
}

/// The setting that most likely forbids user namespaces here.
std::string user_namespace_fix(const Places& places) {
  if (first_line(places.proc + "/sys/kernel/unprivileged_userns_clone") == "0")
    return set_sysctl("kernel.unprivileged_userns_clone", "1");
  for (const Limit& limit : kLimits)
    if (first_line(places.proc + "/sys/" + limit.file) == "0") return set_sysctl(limit.name, "65536");
  if (apparmor_restricts(places)) return "see the line apparmor";
  return "allow ordinary users to make user namespaces; a security module or a container around this system forbids it";
}

/// What AppArmor's list of loaded profiles says of Situla: root alone can read it.
enum class Profile { loaded, missing, unknown };
Profile loaded_profile(const Places& places) {
  const auto list = read_file(places.sys + "/kernel/security/apparmor/profiles", size_t{4} << 20U);
  if (!list) return Profile::unknown;
  return list->find("situla") != std::string::npos ? Profile::loaded : Profile::missing;
}

std::string profile_file(const Places& places) {
  const std::string directory = places.etc + "/apparmor.d";
  const auto names = list_directory(directory);
  if (!names) return "";
  const auto found = std::find_if(names->begin(), names->end(),
                                  [](const std::string& name) { return name.find("situla") != std::string::npos; });
  return found == names->end() ? "" : directory + "/" + *found;
}

}  // namespace

Check check_user_namespaces(const Places& places) {
  return check_of("user-namespaces", try_user_namespace(ordinary_user()), "an ordinary user can make them", State::fail,
                  user_namespace_fix(places));
}

Check check_namespace_limits(const Places& places) {
  Check check{"namespace-limits", State::ok, "", ""};
  std::vector<std::string> parts;
  for (const Limit& limit : kLimits) {
    const std::string text = first_line(places.proc + "/sys/" + limit.file);
    const auto value = parse_unsigned(text);
    if (!value) continue;
    parts.push_back(std::string(limit.name) + "=" + text);
    // What root allows himself in a namespace of his own is no limit of the node; it cannot be told apart.
    if (*value >= kFewNamespaces || check.state == State::fail) continue;
    check.state = *value == 0 ? State::fail : State::warn;
    check.fix = set_sysctl(limit.name, "65536");
  }
  const std::string clone = first_line(places.proc + "/sys/kernel/unprivileged_userns_clone");
  if (!clone.empty()) parts.push_back("kernel.unprivileged_userns_clone=" + clone);
  if (clone == "0") {
    check.state = State::fail;
    check.fix = set_sysctl("kernel.unprivileged_userns_clone", "1");
  }
  check.found = parts.empty() ? "the kernel has no such setting" : join(parts, " ");
  // The kernel derives them from the node's memory.
  if (check.state == State::ok) check.facts = {{"limits", check.found}};
  return check;
}

Check check_apparmor(const Places& places) {
  const std::string setting = std::string(kRestriction) + "=1";
  if (!apparmor_restricts(places)) return {"apparmor", State::ok, "does not restrict user namespaces", ""};
  const std::string file = profile_file(places);
  switch (loaded_profile(places)) {
    case Profile::loaded:
      return {"apparmor", State::ok, setting + ", and a profile for Situla is loaded", ""};
    case Profile::unknown:
      if (!file.empty())
        return {"apparmor", State::info, setting + "; " + file + " is there, only root can see whether it is loaded",
                ""};
      break;
    case Profile::missing:
      break;
  }
  return {"apparmor", State::fail, setting + ", and no profile for Situla is loaded",
          file.empty() ? "install Situla's package, which has the profile; or " + set_sysctl(kRestriction, "0")
                       : "apparmor_parser -r " + shell_quote(file)};
}

Check check_selinux(const Places& places) {
  const std::string enforce = first_line(places.sys + "/fs/selinux/enforce");
  if (enforce != "1") return {"selinux", State::ok, enforce.empty() ? "not in use" : "permissive: denies nothing", ""};
  return {"selinux", State::info, "enforcing: `ausearch -m avc -ts recent` shows what it denies to situla-*", ""};
}

Check check_cgroups(const Places& places) {
  const auto mounts = read_file(places.proc + "/self/mounts", size_t{4} << 20U);
  bool v1 = false, v2 = false;
  if (mounts)
    for (const std::string_view line : split_nonempty(*mounts, '\n')) {
      const std::vector<std::string_view> words = split_words(line);
      if (words.size() < 3) continue;
      v1 = v1 || words[2] == "cgroup";
      v2 = v2 || (words[2] == "cgroup2" && words[1] == "/sys/fs/cgroup");
    }
  if (v2) return {"cgroups", State::ok, "version 2", "", {{"version", "2"}}};
  if (v1) return {"cgroups", State::ok, "version 1", "", {{"version", "1"}}};
  return {"cgroups", State::info, "none are mounted on /sys/fs/cgroup", "", {{"version", ""}}};
}

}  // namespace situla::doctor
