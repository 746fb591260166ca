#include "hooks/run/mount_users.hpp"

#include <charconv>
#include <memory>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFile = size_t{16} << 20U;

std::string proc_file(int proc, const std::string& name) {
  const auto file = open_file_at(proc, name, O_RDONLY);
  return file ? read_all(file->get(), kMaxFile).value_or("") : "";
}

/// The entry's owner is not the process's user when that process hides its memory.
bool is_ours(int proc, const std::string& pid) {
  struct stat status {};
  if (fstatat(proc, pid.c_str(), &status, 0) != 0) return false;
  if (status.st_uid == geteuid()) return true;
  const std::string text = proc_file(proc, pid + "/status");
  return text.find("\nUid:\t" + std::to_string(geteuid()) + "\t") != std::string::npos;
}

}  // namespace

std::vector<UniqueFd> mount_users(int proc, dev_t device) {
  std::vector<UniqueFd> users;
  const int again = openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(again >= 0 ? fdopendir(again) : nullptr, closedir);
  if (!stream) return users;
  // The third field of proc_pid_mountinfo(5).
  const std::string number = " " + std::to_string(major(device)) + ":" + std::to_string(minor(device)) + " ";
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc() || pid <= 0) continue;
    if (pid == getpid() || !is_ours(proc, name)) continue;
    // First the descriptor: if the number is given to another process meanwhile, that one is looked at.
    auto process = open_pidfd(pid);
    if (process && proc_file(proc, name + "/mountinfo").find(number) != std::string::npos)
      users.push_back(std::move(*process));
  }
  return users;
}

}  // namespace situla
