#include "common/sys/directory.hpp"

#include <cerrno>
#include <memory>

#include <dirent.h>

namespace situla {
namespace {

struct Close {
  void operator()(DIR* stream) const { closedir(stream); }
};

}  // namespace

Result<std::vector<std::string>> list_directory(const std::string& path) {
  const std::unique_ptr<DIR, Close> stream(opendir(path.c_str()));
  if (!stream) return fail_errno(errno, "list " + path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return fail_errno(errno, "list " + path);
  return names;
}

}  // namespace situla
