#include "common/sys/mount_table.hpp"

#include <algorithm>

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"

namespace situla {

std::vector<MountRecord> parse_mount_table(std::string_view text) {
  std::vector<MountRecord> all;
  for (const std::string_view line : split_nonempty(text, '\n')) {
    // id parent device root path mount-options [field...] - type source options
    const auto words = split_words(line);
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (dash - words.begin() < 6 || words.end() - dash < 3) continue;
    const auto id = parse_unsigned(words[0]), parent = parse_unsigned(words[1]);
    if (!id || !parent) continue;
    const std::string_view options = words.end() - dash > 3 ? dash[3] : std::string_view();
    all.push_back({*id, *parent, std::string(words[2]), unescape_octal(words[3]), unescape_octal(words[4]),
                   std::string(dash[1]), unescape_octal(dash[2]), std::string(options)});
  }
  return all;
}

Result<std::vector<MountRecord>> mount_table() {
  TRY_ASSIGN(const std::string table, read_file("/proc/self/mountinfo", size_t{64} << 20U));
  return parse_mount_table(table);
}

std::vector<MountRecord> mounts_beneath(const std::vector<MountRecord>& table, uint64_t top) {
  std::vector<MountRecord> below;
  std::vector<uint64_t> parents{top};
  for (size_t next = 0; next < parents.size(); ++next)
    for (const MountRecord& mount : table)
      if (mount.parent == parents[next] && mount.id != mount.parent) {
        parents.push_back(mount.id);
        below.push_back(mount);
      }
  return below;
}

Result<uint64_t> mount_id(int fd) {
  // Since Linux 5.8, for a tenth of what /proc costs; no file system has to be asked for it.
  kernel::FileStatus status{};
  if (kernel::statx(fd, kernel::kStatxDontSync, kernel::kStatxMountId, status) == 0 &&
      (status.mask & kernel::kStatxMountId) != 0)
    return status.mount_id;
  return mount_id_by_proc(fd);
}

Result<uint64_t> mount_id_by_proc(int fd) {
  TRY_ASSIGN(const std::string info, read_file("/proc/self/fdinfo/" + std::to_string(fd), 4096));
  for (const std::string_view line : split(info, '\n')) {
    if (!line.starts_with("mnt_id:")) continue;
    if (const auto id = parse_unsigned(trim(line.substr(7)))) return *id;
  }
  return fail(ErrorKind::unsupported, "find the mount of a descriptor: no mnt_id in /proc/self/fdinfo");
}

}  // namespace situla
