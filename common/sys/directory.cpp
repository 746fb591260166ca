#include "common/sys/directory.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>

#include <dirent.h>
#include <fcntl.h>

#include "common/base/unique_fd.hpp"

namespace situla {
namespace {

struct Close {
  void operator()(DIR* stream) const { closedir(stream); }
};

using Stream = std::unique_ptr<DIR, Close>;

Result<std::vector<std::string>> names_of(DIR* stream, const std::string& operand) {
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return fail_errno(errno, "list " + operand);
  return names;
}

}  // namespace

Result<std::vector<std::string>> list_directory(const std::string& path) {
  const Stream stream(opendir(path.c_str()));
  if (!stream) return fail_errno(errno, "list " + path);
  return names_of(stream.get(), path);
}

Result<std::vector<std::string>> names_with_suffix(const std::string& path, std::string_view suffix) {
  auto names = list_directory(path);
  if (!names && names.error().kind() == ErrorKind::not_found) return std::vector<std::string>();
  if (!names) return names;
  std::erase_if(*names, [&](const std::string& name) { return !name.ends_with(suffix) || name.starts_with('.'); });
  std::sort(names->begin(), names->end());
  return names;
}

Result<std::vector<std::string>> list_directory(int directory_fd, const std::string& operand) {
  UniqueFd again(openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return fail_errno(errno, "list " + operand);
  const Stream stream(fdopendir(again.get()));
  if (!stream) return fail_errno(errno, "list " + operand);
  (void)again.release();
  return names_of(stream.get(), operand);
}

}  // namespace situla
