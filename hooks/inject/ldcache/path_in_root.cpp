#include "hooks/inject/ldcache/path_in_root.hpp"

#include <climits>

#include <unistd.h>

#include "common/sys/fd_path.hpp"

namespace situla {
namespace {

Result<std::string> path_of(int fd) {
  const std::string link = fd_path(fd);
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  if (size < 0) return fail_errno(errno, "read link " + link);
  path.resize(static_cast<size_t>(size));
  return path;
}

}  // namespace

Result<std::string> path_in_root(const RootDir& root, int fd) {
  TRY_ASSIGN(std::string top, path_of(root.fd()));
  TRY_ASSIGN(const std::string path, path_of(fd));
  if (top == path) return std::string("/");
  if (!top.ends_with('/')) top += '/';
  if (!path.starts_with(top)) return fail(ErrorKind::failure, "find out what " + path + " is called inside " + top);
  return path.substr(top.size() - 1);
}

}  // namespace situla
