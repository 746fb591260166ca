#include "hooks/containers/container_process.hpp"

#include <algorithm>
#include <charconv>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/mount_table.hpp"
#include "common/sys/process/process.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20U;

/// The entry's owner is not the process's user when that process hides its memory.
bool is_ours(int proc, const std::string& pid) {
  struct stat status {};
  if (fstatat(proc, pid.c_str(), &status, 0) != 0) return false;
  if (status.st_uid == geteuid()) return true;
  const std::string text = read_process_file(proc, pid + "/status");
  return text.find("\nUid:\t" + std::to_string(geteuid()) + "\t") != std::string::npos;
}

bool has_range(int proc) {
  return NamespaceIds(read_process_file(proc, "self/uid_map"), read_process_file(proc, "self/gid_map"))
      .range()
      .has_value();
}

}  // namespace

std::string read_process_file(int process, const std::string& name) {
  const auto file = open_file_at(process, name, O_RDONLY);
  return file ? read_all(file->get(), kMaxFileBytes).value_or("") : std::string();
}

int64_t ProcessStat::number(size_t field) const {
  int64_t value = 0;
  const std::string_view word = fields[field - 3];
  (void)std::from_chars(word.begin(), word.end(), value);
  return value;
}

std::optional<ProcessStat> read_stat(int process) {
  constexpr size_t kFields = 49;  // since Linux 3.5
  ProcessStat stat;
  stat.text = read_process_file(process, "stat");
  const size_t end = stat.text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  stat.text.erase(0, end + 1);
  stat.fields = split_words(stat.text);
  if (stat.fields.size() < kFields) return std::nullopt;
  return stat;
}

bool runs_host_program(int process) {
  const auto program = open_file_at(process, "exe", O_PATH);
  if (!program) return false;
  const auto mount = mount_id(program->get());
  if (!mount) return false;
  const auto mounts = parse_mount_table(read_process_file(process, "mountinfo"));
  return std::none_of(mounts.begin(), mounts.end(), [&](const MountRecord& known) { return known.id == *mount; });
}

std::vector<UniqueFd> mount_users(int proc, dev_t device) {
  std::vector<UniqueFd> users;
  const auto names = list_directory(proc, "/proc");
  if (!names) return users;
  // With a range a program may be any user: nobody's number is also shown of those that the namespace lacks.
  const bool of_anybody = has_range(proc);
  // The third field of proc_pid_mountinfo(5).
  const std::string number = " " + std::to_string(major(device)) + ":" + std::to_string(minor(device)) + " ";
  for (const std::string& name : *names) {
    const auto pid = static_cast<pid_t>(parse_unsigned(name).value_or(0));
    if (pid <= 0 || pid == getpid() || (!of_anybody && !is_ours(proc, name))) continue;
    // First the descriptor: if the number is given to another process meanwhile, that one is looked at.
    auto process = open_pidfd(pid);
    if (process && read_process_file(proc, name + "/mountinfo").find(number) != std::string::npos)
      users.push_back(std::move(*process));
  }
  return users;
}

}  // namespace situla
