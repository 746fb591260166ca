#include "tests/faults/process_view.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include <elf.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace situla::faults {
namespace {

constexpr size_t kLongestText = 4096;

std::string place(pid_t process, const std::string& name) {
  return "/proc/" + std::to_string(process) + "/" + name;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string link_text(const std::string& path) {
  char text[kLongestText];
  const ssize_t size = readlink(path.c_str(), text, sizeof text);
  return size < 0 ? std::string() : std::string(text, static_cast<size_t>(size));
}

bool kernel_only(const struct statfs& info) {
  constexpr long kTypes[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                             0x6e736673 /* nsfs */};
  return std::find(std::begin(kTypes), std::end(kTypes), static_cast<long>(info.f_type)) != std::end(kTypes);
}

/// A copy of its socket is open for a moment only while it is stopped.
bool is_stream(pid_t process, int number) {
  const auto pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (pidfd < 0) return false;
  const auto copy = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, number, 0));
  close(pidfd);
  if (copy < 0) return false;
  int type = 0;
  socklen_t size = sizeof type;
  const bool known = getsockopt(copy, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  close(copy);
  return known && type == SOCK_STREAM;
}

int flags_of(pid_t process, int number) {
  std::istringstream lines(read_all(place(process, "fdinfo/" + std::to_string(number))));
  for (std::string word; lines >> word;)
    if (word == "flags:" && lines >> word) return static_cast<int>(std::stol(word, nullptr, 8));
  return 0;
}

}  // namespace

std::vector<Mapping> mappings_of(pid_t process) {
  std::vector<Mapping> found;
  std::istringstream lines(read_all(place(process, "maps")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    Mapping mapping;
    char dash = 0;
    std::string rights, device, inode;
    fields >> std::hex >> mapping.begin >> dash >> mapping.end >> rights >> mapping.offset >> device >> inode >>
        std::ws;
    std::getline(fields, mapping.file);
    mapping.executable = rights.find('x') != std::string::npos;
    found.push_back(mapping);
  }
  return found;
}

std::string memory_of(pid_t process, uint64_t address, size_t size) {
  const int memory = open(place(process, "mem").c_str(), O_RDONLY | O_CLOEXEC);
  if (memory < 0) return {};
  std::string bytes(size, '\0');
  const ssize_t got = pread(memory, bytes.data(), size, static_cast<off_t>(address));
  close(memory);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

std::string text_of(pid_t process, uint64_t address) {
  const std::string bytes = memory_of(process, address, kLongestText);
  return bytes.substr(0, bytes.find('\0'));
}

uint64_t word_of(pid_t process, uint64_t address) {
  uint64_t word = 0;
  const std::string bytes = memory_of(process, address, sizeof word);
  if (bytes.size() == sizeof word) std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

std::string program_of(pid_t process) {
  std::string path = link_text(place(process, "exe"));
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.size() > kDeleted.size() && path.compare(path.size() - kDeleted.size(), kDeleted.size(), kDeleted) == 0)
    path.resize(path.size() - kDeleted.size());
  return path;
}

std::string command_of(pid_t process) {
  const std::string text = read_all(place(process, "comm"));
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> arguments_of(pid_t process) {
  std::vector<std::string> words;
  std::istringstream text(read_all(place(process, "cmdline")));
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

uint64_t loader_of(pid_t process) {
  const std::string table = read_all(place(process, "auxv"));
  for (size_t at = 0; at + sizeof(Elf64_auxv_t) <= table.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry;
    std::memcpy(&entry, table.data() + at, sizeof entry);
    if (entry.a_type == AT_BASE) return entry.a_un.a_val;
  }
  return 0;
}

Descriptor descriptor_of(pid_t process, int number) {
  Descriptor found;
  const std::string path = place(process, "fd/" + std::to_string(number));
  struct stat status {};
  if (number < 0 || stat(path.c_str(), &status) != 0) return found;
  found.open = true;
  found.target = link_text(path);
  struct statfs system {};
  if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) {
    if (statfs(path.c_str(), &system) != 0) return found;
    found.in_kernel = kernel_only(system);
    found.regular = S_ISREG(status.st_mode) && !found.in_kernel;
  }
  found.waits = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISCHR(status.st_mode);
  found.nonblocking = (flags_of(process, number) & O_NONBLOCK) != 0;
  found.stream = S_ISFIFO(status.st_mode) || (S_ISSOCK(status.st_mode) && is_stream(process, number));
  return found;
}

}  // namespace situla::faults
