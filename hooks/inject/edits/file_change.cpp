#include "hooks/inject/edits/file_change.hpp"

#include <array>
#include <climits>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr mode_t kParentMode = 0755;

/// Where a change is made: an open directory of the container, which stays the same one whatever is renamed, and a name
/// in it. Nothing below follows a link at that name.
struct FilePlace {
  UniqueFd directory;
  std::string name;
};

Result<FilePlace> open_place(const std::string& path, const RootDir& root) {
  const size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == "..") return fail_errno(EISDIR, "change " + path);
  const std::string directory = slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
  TRY_ASSIGN(UniqueFd fd, root.make_directories(directory, kParentMode));
  return FilePlace{std::move(fd), std::move(name)};
}

/// The new file or link takes the place of the old one in one moment.
Result<void> rename_into_place(const FilePlace& place, const std::string& temporary, const std::string& what) {
  if (renameat(place.directory.get(), temporary.c_str(), place.directory.get(), place.name.c_str()) == 0) return {};
  Error error = Error::from_errno(errno, what);
  if (error.errnum() == EISDIR)
    error.with_code(ErrorCode::hook).with_hint("a directory is there, which nothing but a directory can replace");
  return fail(std::move(error));
}

bool is_link_to(const FilePlace& place, const std::string& target) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlinkat(place.directory.get(), place.name.c_str(), text.data(), text.size());
  return size >= 0 && std::string_view(text.data(), static_cast<size_t>(size)) == target;
}

Result<void> replace_by_link(const FileChange& change, const FilePlace& place) {
  // Where nothing is there is nothing to replace, and a name that nobody ever had costs a question to the file system.
  if (symlinkat(change.content.c_str(), place.directory.get(), place.name.c_str()) == 0) return {};
  if (errno != EEXIST) return fail_errno(errno, "link " + change.path);
  const std::string temporary = random_name(".situla-");
  if (symlinkat(change.content.c_str(), place.directory.get(), temporary.c_str()) != 0)
    return fail_errno(errno, "link " + change.path);
  ScopeExit remove([&] { (void)unlinkat(place.directory.get(), temporary.c_str(), 0); });
  TRY(rename_into_place(place, temporary, "link " + change.path));
  remove.dismiss();
  return {};
}

Result<void> write(const FileChange& change, const FilePlace& place) {
  const std::string what = "write " + change.path + " in the root file system";
  const std::string temporary = random_name(".situla-");
  const UniqueFd file(
      openat(place.directory.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail_errno(errno, what);
  ScopeExit remove([&] { (void)unlinkat(place.directory.get(), temporary.c_str(), 0); });
  TRY_CONTEXT(what, write_all(file.get(), change.content));
  if (fchmod(file.get(), change.mode) != 0) return fail_errno(errno, what);
  TRY(rename_into_place(place, temporary, what));
  remove.dismiss();
  return {};
}

Result<void> make_directory(const FileChange& change, const FilePlace& place) {
  if (mkdirat(place.directory.get(), place.name.c_str(), 0700) != 0)
    return fail_errno(errno, "create directory " + change.path);
  // By descriptor: chmod by name would follow a link that somebody put there meanwhile.
  const UniqueFd made(
      openat(place.directory.get(), place.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made || fchmod(made.get(), change.mode) != 0) return fail_errno(errno, "set the mode of " + change.path);
  return {};
}

Result<void> apply_one(const FileChange& change, const RootDir& root) {
  if (change.kind == FileChange::Kind::directory && root.exists(change.path)) return {};
  TRY_ASSIGN(const FilePlace place, open_place(change.path, root));
  // The host's /dev, where a container has it, has the links of its devices already.
  if (change.kind == FileChange::Kind::link && is_link_to(place, change.content)) return {};
  TRY_CONTEXT("change " + change.path, root.may_create_in(place.directory.get()));
  switch (change.kind) {
    case FileChange::Kind::write:
      return write(change, place);
    case FileChange::Kind::link:
      return replace_by_link(change, place);
    case FileChange::Kind::directory:
      return make_directory(change, place);
  }
  return {};
}

}  // namespace

Result<void> apply_file_changes(const std::vector<FileChange>& changes, const RootDir& root, LogSink& log) {
  for (const FileChange& change : changes) {
    auto done = apply_one(change, root);
    if (done) continue;
    if (done.error().errnum() != EBUSY) return fail(std::move(done).error().with_code(ErrorCode::hook));
    log.warning("leaving " + change.path + " as it is: something is mounted there");
  }
  return {};
}

}  // namespace situla
