#include "hooks/unpack/extract.hpp"

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/unpack/extract_files.hpp"
#include "hooks/unpack/image_access.hpp"
#include "hooks/unpack/image_owners.hpp"

namespace situla {
namespace {

/// Each level holds a descriptor; no real file system image comes near this.
constexpr int kMaxDepth = 400;

class Extractor {
 public:
  /// owners: of files that are not all the caller's; or null.
  Extractor(ImageAccess& image, RootDir root, const ExtractOptions& options, const ImageOwners* owners)
      : image_(image),
        root_(std::move(root)),
        rules_{options.keep_set_id, owners},
        notes_(options.log),
        writers_(image, options.threads, rules_, notes_) {}

  Result<void> run() {
    TRY_ASSIGN(const StoredInode top, image_.top());
    TRY(directory_content(root_.fd(), "", top, 0));
    TRY(writers_.finish());
    finished_.emplace_back("", top);
    return finish_directories();
  }

 private:
  Result<void> directory_content(int fd, const std::string& path, const StoredInode& node, int depth) {
    // A directory has one name; one that is met twice contains itself or multiplies without end.
    if (!seen_directories_.insert(node.number).second)
      return fail(Error(ErrorKind::corrupt, "extract " + printable(path) + ": a directory with two names")
                      .with_code(ErrorCode::image_damaged));
    if (depth > kMaxDepth)
      return fail(Error(ErrorKind::corrupt,
                        "extract " + printable(path) + ": directories nested deeper than " + std::to_string(kMaxDepth))
                      .with_code(ErrorCode::image_damaged));
    const auto names = image_.list(node);
    if (!names) return fail(Error(names.error()).with_context("extract " + printable(path) + "/"));
    for (const StoredName& entry : **names) {
      const std::string child = path.empty() ? entry.name : path + "/" + entry.name;
      const auto inode = image_.inode(entry.inode);
      if (!inode) return fail(Error(inode.error()).with_context("extract " + printable(child)));
      auto done = create(fd, entry.name, child, *inode, depth);
      if (!done && done.error().errnum() == EEXIST)
        return fail(Error(ErrorKind::corrupt,
                          "extract " + printable(child) + ": the name appears twice, or the target was not empty")
                        .with_code(ErrorCode::image_damaged));
      TRY(done);
    }
    return {};
  }

  Result<void> create(int parent, const std::string& name, const std::string& path, const StoredInode& node,
                      int depth) {
    const std::string what = "extract " + printable(path);
    if (node.links > 1 && !S_ISDIR(node.mode)) {
      const auto known = linked_.find(node.number);
      if (known != linked_.end()) {
        TRY_CONTEXT(what, hard_link(known->second, parent, name));
        return {};
      }
    }
    switch (node.mode & S_IFMT) {
      case S_IFDIR:
        return directory(parent, name, path, node, depth);
      case S_IFREG:
        TRY(file(parent, name, path, node));
        break;
      case S_IFLNK:
        TRY_CONTEXT(what, symbolic_link(parent, name, node));
        break;
      case S_IFIFO:
        TRY_CONTEXT(what, fifo(parent, name, node));
        break;
      default:
        notes_.add(S_ISSOCK(node.mode) ? "sockets are left out" : "device nodes are left out", path);
        return {};
    }
    if (node.links > 1) linked_.emplace(node.number, path);
    return {};
  }

  Result<void> hard_link(const std::string& existing, int parent, const std::string& name) {
    const size_t slash = existing.rfind('/');
    TRY_ASSIGN(const UniqueFd from,
               root_.open_at(slash == std::string::npos ? "." : existing.substr(0, slash), O_PATH | O_DIRECTORY));
    const std::string base = slash == std::string::npos ? existing : existing.substr(slash + 1);
    if (linkat(from.get(), base.c_str(), parent, name.c_str(), 0) != 0)
      return fail_errno(errno, "link to " + printable(existing));
    return {};
  }

  Result<void> directory(int parent, const std::string& name, const std::string& path, const StoredInode& node,
                         int depth) {
    const std::string what = "extract " + printable(path);
    if (mkdirat(parent, name.c_str(), 0700) != 0) return fail_errno(errno, what);
    const UniqueFd fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno(errno, what);
    TRY_CONTEXT(what, extract_attributes(image_, fd.get(), path, node, notes_));
    TRY(directory_content(fd.get(), path, node, depth + 1));
    // Modes last: a directory without write permission could not be filled, nor be reached for a later hard link.
    finished_.emplace_back(path, node);
    return {};
  }

  /// Made here, so that hard links find it; filled by whoever has time.
  Result<void> file(int parent, const std::string& name, const std::string& path, const StoredInode& node) {
    UniqueFd fd(openat(parent, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "extract " + printable(path) + ": create");
    return writers_.add(std::move(fd), path, node);
  }

  Result<void> symbolic_link(int parent, const std::string& name, const StoredInode& node) {
    TRY_ASSIGN(const std::string target, image_.link_target(node));
    if (symlinkat(target.c_str(), parent, name.c_str()) != 0) return fail_errno(errno, "create link");
    if (rules_.owners != nullptr && fchownat(parent, name.c_str(), rules_.owners->uid_of(node),
                                             rules_.owners->gid_of(node), AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, "set owner");
    const timespec time{static_cast<time_t>(node.modification_time), 0};
    const timespec times[2] = {time, time};
    if (utimensat(parent, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "set time");
    return {};
  }

  Result<void> fifo(int parent, const std::string& name, const StoredInode& node) {
    if (mkfifoat(parent, name.c_str(), 0600) != 0) return fail_errno(errno, "create fifo");
    // Opened for both ends, or the open would wait for a partner.
    const UniqueFd fd(openat(parent, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "open fifo");
    TRY(give_away(fd.get(), node, rules_));
    return finish_extracted(fd.get(), node, rules_);
  }

  Result<void> finish_directories() {
    // A child always stands before its parent, so no directory loses its rights while it is still needed.
    for (const auto& [path, node] : finished_) {
      const std::string what = "extract " + printable(path);
      auto fd = root_.open_at(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!fd) return fail(std::move(fd).error().with_context(what));
      // What is on top holds what Situla keeps of a container, and stays its user's.
      if (!path.empty()) TRY_CONTEXT(what, give_away(fd->get(), node, rules_));
      TRY_CONTEXT(what, finish_extracted(fd->get(), node, rules_));
    }
    return {};
  }

  ImageAccess& image_;
  RootDir root_;
  const FinishRules rules_;
  std::unordered_map<uint32_t, std::string> linked_;
  std::unordered_set<uint32_t> seen_directories_;
  std::vector<std::pair<std::string, StoredInode>> finished_;  ///< directories
  ExtractNotes notes_;
  FileWriters writers_;
};

}  // namespace

Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options) {
  TRY_ASSIGN(ImageAccess image, ImageAccess::open(image_fd));
  UniqueFd target(openat(target_directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!target) return fail_errno(errno, "open target directory");
  ImageOwners owners(geteuid(), getegid());
  if (options.owners) {
    TRY_ASSIGN(owners, ImageOwners::of(image, NamespaceIds::own(), geteuid(), getegid()));
  }
  return Extractor(image, RootDir::from_fd(std::move(target)), options, owners.several() ? &owners : nullptr).run();
}

}  // namespace situla
