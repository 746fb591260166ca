#include "hooks/containers/own_ids.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/unique_fd.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/identity.hpp"

namespace situla {
namespace {

/// As many descriptors are open at a time.
constexpr int kMostDepth = 256;

bool owns(int parent_fd, const std::string& name, int depth) {
  struct stat status {};
  if (fstatat(parent_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode)) return true;
  if (status.st_uid != geteuid() || depth > kMostDepth) return false;
  const UniqueFd directory(openat(parent_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno == EACCES || errno == ENOENT;
  const auto entries = list_directory(directory.get(), name);
  return entries && std::all_of(entries->begin(), entries->end(),
                                [&](const std::string& entry) { return owns(directory.get(), entry, depth + 1); });
}

}  // namespace

Result<IdRange> find_own_range(const IdRangeRule& rule) {
  return find_id_range({geteuid(), getegid(), supplementary_groups()}, rule);
}

IdRangeRule site_range_rule() {
  const auto site = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  return site ? site->id_ranges : IdRangeRule{};
}

std::optional<IdRange> own_range_with(uid_t owner) {
  const NamespaceIds ids = NamespaceIds::own();
  if (ids.range()) return ids.image_uid(owner) != 0 ? ids.range() : std::nullopt;
  const auto range = find_own_range(site_range_rule());
  if (!range || owner < range->first_uid || owner - range->first_uid >= IdRange::kCount) return std::nullopt;
  return *range;
}

bool owns_directories(int parent_fd, const std::string& name) {
  return (geteuid() == 0 && in_initial_user_namespace()) || owns(parent_fd, name, 0);
}

}  // namespace situla
