#include "hooks/inject/edits/file_change.hpp"

#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace situla {
namespace {

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"/", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

Result<void> replace_by_link(const FileChange& change, const RootDir& root) {
  const auto [directory, name] = split_path(change.path);
  TRY_ASSIGN(const UniqueFd parent, root.make_directories(directory, 0755));
  if (unlinkat(parent.get(), name.c_str(), 0) != 0 && errno != ENOENT)
    return fail_errno(errno, "replace " + change.path);
  if (symlinkat(change.content.c_str(), parent.get(), name.c_str()) != 0)
    return fail_errno(errno, "link " + change.path);
  return {};
}

Result<void> make_directory(const FileChange& change, const RootDir& root) {
  if (root.exists(change.path)) return {};
  const auto [directory, name] = split_path(change.path);
  TRY_ASSIGN(const UniqueFd parent, root.make_directories(directory, 0755));
  if (mkdirat(parent.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(errno, "create directory " + change.path);
  if (fchmodat(parent.get(), name.c_str(), change.mode, 0) != 0)
    return fail_errno(errno, "set the mode of " + change.path);
  return {};
}

Result<void> write(const FileChange& change, const RootDir& root) {
  TRY(root.make_directories(split_path(change.path).first, 0755));
  return root.write_file(change.path, change.content, change.mode);
}

Result<void> apply_one(const FileChange& change, const RootDir& root) {
  switch (change.kind) {
    case FileChange::Kind::write:
      return write(change, root);
    case FileChange::Kind::link:
      return replace_by_link(change, root);
    case FileChange::Kind::directory:
      return make_directory(change, root);
  }
  return {};
}

}  // namespace

Result<void> apply_file_changes(const std::vector<FileChange>& changes, const RootDir& root, LogSink& log) {
  for (const FileChange& change : changes) {
    auto done = apply_one(change, root);
    if (done) continue;
    if (done.error().errnum() != EBUSY) return done;
    log.warning("leaving " + change.path + " as it is: something is mounted there");
  }
  return {};
}

}  // namespace situla
