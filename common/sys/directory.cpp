#include "common/sys/directory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/unique_fd.hpp"

namespace situla {
namespace {

Result<std::vector<std::string>> names_of(UniqueFd directory, const std::string& operand) {
  const DirStream stream(directory ? fdopendir(directory.get()) : nullptr);
  if (!stream) return fail_errno(errno, "list " + operand);
  (void)directory.release();
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return fail_errno(errno, "list " + operand);
  return names;
}

}  // namespace

Result<std::vector<std::string>> list_directory(const std::string& path) {
  return names_of(UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), path);
}

Result<std::vector<std::string>> list_directory(int directory_fd, const std::string& operand) {
  return names_of(UniqueFd(openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), operand);
}

void ask_for_names(int directory_fd) {
  constexpr size_t kRoom = 32768;
  std::array<char, kRoom> names{};
  if (lseek(directory_fd, 0, SEEK_SET) == 0) (void)syscall(SYS_getdents64, directory_fd, names.data(), names.size());
}

Result<std::vector<std::string>> names_with_suffix(const std::string& path, std::string_view suffix) {
  auto names = list_directory(path);
  if (!names && names.error().kind() == ErrorKind::not_found) return std::vector<std::string>();
  if (!names) return names;
  std::erase_if(*names, [&](const std::string& name) { return !name.ends_with(suffix) || name.starts_with('.'); });
  std::sort(names->begin(), names->end());
  return names;
}

uint64_t disk_usage(const std::string& path) {
  constexpr uint64_t kBlock = 512;  // stat(2), st_blocks
  std::string root = path;
  char* const roots[] = {root.data(), nullptr};
  const std::unique_ptr<FTS, decltype(&fts_close)> walk(fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, nullptr),
                                                        &fts_close);
  uint64_t bytes = 0;
  while (const FTSENT* entry = walk ? fts_read(walk.get()) : nullptr)
    if (entry->fts_info != FTS_DP && entry->fts_info != FTS_NS)
      bytes += kBlock * static_cast<uint64_t>(entry->fts_statp->st_blocks);
  return bytes;
}

}  // namespace situla
