#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/users.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/store_checks.hpp"

namespace situla::doctor {

Check check_local_tier(const SiteConfig& config, uid_t owner, const MountedFrom& place, bool beside_store) {
  constexpr const char* kName = "local-tier";
  const std::string &path = config.local_tier, quoted = shell_quote(path);
  const auto useless = [&](const std::string& why, const std::string& fix) {
    return Check{kName, State::warn, path + " " + why + ": no copies are made", fix};
  };
  if (beside_store)
    return useless("is on the file system of the store",
                   "set local_tier in situla.toml to a disk of the node, or take it out where the store is on one");
  if (place.kind == FileSystemKind::network)
    return useless("is on " + place.type + ", a file system of several nodes",
                   "set local_tier in situla.toml to a disk of the node");
  const std::string make = "install -d -m 0700 -o " + config.service_user + " -g " + config.service_user + " " + quoted;
  struct stat status {};
  if (stat(existing(path).c_str(), &status) != 0 || status.st_uid != owner)
    return useless(existing(path) == path ? "does not belong to " + config.service_user : "does not exist", make);
  Check check{kName, State::ok, path, ""};
  if (existing(path) != path) check.found += " (made when it is needed)";
  add_disk(check, existing(path), Use::copies);
  return check;
}

}  // namespace situla::doctor
