#include "hooks/inject/ldcache/path_in_root.hpp"

#include <filesystem>

#include "common/sys/fd_path.hpp"

namespace situla {
namespace {

Result<std::string> path_of(int fd) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink(fd_path(fd), error);
  if (error) return fail_errno(error.value(), "read link " + fd_path(fd));
  return path.string();
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
