#include "hooks/unpack/extract.hpp"

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/unpack/squashfs_reader.hpp"

namespace situla {
namespace {

/// Each level holds a descriptor; no real file system image comes near this.
constexpr int kMaxDepth = 400;
constexpr int kMaxLinks = 40;

timespec seconds(uint32_t time) {
  return {static_cast<time_t>(time), 0};
}

class Extractor {
 public:
  Extractor(SquashfsReader& reader, RootDir root, const ExtractOptions& options)
      : reader_(reader), root_(std::move(root)), options_(options) {}

  Result<void> run() {
    TRY_ASSIGN(const ImageNode top, reader_.root());
    TRY(directory_content(root_.fd(), "", top, 0));
    finished_.push_back({"", top.mode, top.modification_time});
    return finish_directories();
  }

 private:
  struct Finished {
    std::string path;
    uint32_t mode;
    uint32_t modification_time;
  };

  /// Said once per reason; the first path is the example.
  void note(const std::string& what, const std::string& path) {
    if (options_.log != nullptr && noted_.insert(what).second)
      options_.log->info(what + ", for example " + printable(path));
  }

  [[nodiscard]] uint32_t permissions(uint32_t mode) const { return options_.keep_set_id ? mode : mode & 01777U; }

  Result<void> directory_content(int fd, const std::string& path, const ImageNode& node, int depth) {
    // A directory has one name; one that is met twice contains itself or multiplies without end.
    if (!seen_directories_.insert(node.number).second)
      return fail(ErrorKind::corrupt, "extract " + printable(path) + ": a directory with two names");
    if (depth > kMaxDepth)
      return fail(ErrorKind::corrupt,
                  "extract " + printable(path) + ": directories nested deeper than " + std::to_string(kMaxDepth));
    auto entries = reader_.list(node);
    if (!entries) return fail(std::move(entries).error().with_context("extract " + printable(path) + "/"));
    for (const ImageEntry& entry : *entries) {
      const std::string child = path.empty() ? entry.name : path + "/" + entry.name;
      auto done = create(fd, entry.name, child, entry.node, depth);
      if (!done && done.error().errnum() == EEXIST)
        return fail(ErrorKind::corrupt,
                    "extract " + printable(child) + ": the name appears twice, or the target was not empty");
      TRY(done);
    }
    return {};
  }

  Result<void> create(int parent, const std::string& name, const std::string& path, const ImageNode& node, int depth) {
    const std::string what = "extract " + printable(path);
    if (node.links > 1 && node.kind != NodeKind::directory) {
      const auto known = linked_.find(node.number);
      if (known != linked_.end()) {
        TRY_CONTEXT(what, hard_link(known->second, parent, name));
        return {};
      }
    }
    switch (node.kind) {
      case NodeKind::directory:
        return directory(parent, name, path, node, depth);
      case NodeKind::file:
        TRY_CONTEXT(what, file(parent, name, path, node));
        break;
      case NodeKind::link:
        TRY_CONTEXT(what, symbolic_link(parent, name, node));
        break;
      case NodeKind::fifo:
        TRY_CONTEXT(what, fifo(parent, name, node));
        break;
      case NodeKind::socket:
        note("sockets are left out", path);
        return {};
      case NodeKind::block_device:
      case NodeKind::character_device:
        note("device nodes are left out", path);
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

  Result<void> directory(int parent, const std::string& name, const std::string& path, const ImageNode& node,
                         int depth) {
    const std::string what = "extract " + printable(path);
    if (mkdirat(parent, name.c_str(), 0700) != 0) return fail_errno(errno, what);
    const UniqueFd fd(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno(errno, what);
    TRY_CONTEXT(what, attributes(fd.get(), path, node));
    TRY(directory_content(fd.get(), path, node, depth + 1));
    // Modes last: a directory without write permission could not be filled, nor be reached for a later hard link.
    finished_.push_back({path, node.mode, node.modification_time});
    return {};
  }

  Result<void> file(int parent, const std::string& name, const std::string& path, const ImageNode& node) {
    const UniqueFd fd(openat(parent, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "create");
    uint64_t end = 0;
    const auto write_block = [&](uint64_t offset, std::string_view bytes) -> Result<void> {
      end = offset + bytes.size();
      while (!bytes.empty()) {
        const ssize_t count = pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno(errno, "write");
        bytes.remove_prefix(static_cast<size_t>(count));
        offset += static_cast<uint64_t>(count);
      }
      return {};
    };
    TRY(reader_.read(node, write_block));
    // A hole at the end, or nothing but holes. A size beyond what a file can have is EFBIG or EINVAL here.
    if (end != node.size && ftruncate(fd.get(), static_cast<off_t>(node.size)) != 0)
      return fail_errno(errno, "set size");
    TRY(attributes(fd.get(), path, node));
    return finish(fd.get(), node);
  }

  Result<void> finish(int fd, const ImageNode& node) {
    if (fchmod(fd, permissions(node.mode)) != 0) return fail_errno(errno, "set mode");
    const timespec times[2] = {seconds(node.modification_time), seconds(node.modification_time)};
    if (futimens(fd, times) != 0) return fail_errno(errno, "set time");
    return {};
  }

  Result<void> symbolic_link(int parent, const std::string& name, const ImageNode& node) {
    if (symlinkat(node.target.c_str(), parent, name.c_str()) != 0) return fail_errno(errno, "create link");
    const timespec times[2] = {seconds(node.modification_time), seconds(node.modification_time)};
    if (utimensat(parent, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "set time");
    return {};
  }

  Result<void> fifo(int parent, const std::string& name, const ImageNode& node) {
    if (mkfifoat(parent, name.c_str(), 0600) != 0) return fail_errno(errno, "create fifo");
    // Opened for both ends, or the open would wait for a partner.
    const UniqueFd fd(openat(parent, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "open fifo");
    return finish(fd.get(), node);
  }

  Result<void> attributes(int fd, const std::string& path, const ImageNode& node) {
    TRY_ASSIGN(const std::vector<ImageAttribute> all, reader_.attributes(node));
    for (const auto& [key, value] : all) {
      const bool wanted = key.starts_with("user.") || key == "security.capability";
      if (wanted && fsetxattr(fd, key.c_str(), value.data(), value.size(), 0) == 0) continue;
      const int errnum = wanted ? errno : EPERM;
      if (errnum == ENOSPC || errnum == EDQUOT) return fail_errno(errnum, "set attribute " + printable(key));
      note("attributes like " + printable(key) + " cannot be kept here (" + Error::from_errno(errnum, "set").message() +
               ")",
           path);
    }
    return {};
  }

  Result<void> finish_directories() {
    // A child always stands before its parent, so no directory loses its rights while it is still needed.
    for (const Finished& entry : finished_) {
      const std::string what = "extract " + printable(entry.path);
      auto fd = root_.open_at(entry.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!fd) return fail(std::move(fd).error().with_context(what));
      ImageNode node;
      node.mode = entry.mode;
      node.modification_time = entry.modification_time;
      TRY_CONTEXT(what, finish(fd->get(), node));
    }
    return {};
  }

  SquashfsReader& reader_;
  RootDir root_;
  const ExtractOptions& options_;
  std::unordered_map<uint32_t, std::string> linked_;
  std::unordered_set<uint32_t> seen_directories_;
  std::vector<Finished> finished_;
  std::set<std::string> noted_;
};

/// A path inside the image, links followed as in a root file system.
Result<ImageNode> find_in_image(SquashfsReader& reader, const std::string& path) {
  std::vector<ImageNode> stack;
  TRY_ASSIGN(ImageNode top, reader.root());
  stack.push_back(std::move(top));
  std::vector<std::string> todo;  // last component first
  const auto push = [&todo](std::string_view text) {
    const auto parts = split_nonempty(text, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) todo.emplace_back(*part);
  };
  push(path);
  for (int links = 0; !todo.empty();) {
    const std::string name = std::move(todo.back());
    todo.pop_back();
    if (name == ".") continue;
    if (name == "..") {
      if (stack.size() > 1) stack.pop_back();
      continue;
    }
    if (stack.back().kind != NodeKind::directory) return fail_errno(ENOTDIR, "open " + path + " in the image");
    TRY_ASSIGN(std::vector<ImageEntry> entries, reader.list(stack.back()));
    const auto found =
        std::find_if(entries.begin(), entries.end(), [&](const ImageEntry& entry) { return entry.name == name; });
    if (found == entries.end()) return fail_errno(ENOENT, "open " + path + " in the image");
    if (found->node.kind != NodeKind::link) {
      stack.push_back(std::move(found->node));
      continue;
    }
    if (++links > kMaxLinks) return fail_errno(ELOOP, "open " + path + " in the image");
    if (found->node.target.starts_with('/')) stack.resize(1);
    push(found->node.target);
  }
  return std::move(stack.back());
}

}  // namespace

Result<ImageInfo> read_image_info(int image_fd) {
  TRY_ASSIGN(const SquashfsReader reader, SquashfsReader::open(image_fd));
  return reader.info();
}

Result<std::string> read_image_file(int image_fd, const std::string& path, size_t limit) {
  TRY_ASSIGN(SquashfsReader reader, SquashfsReader::open(image_fd));
  TRY_ASSIGN(const ImageNode node, find_in_image(reader, path));
  if (node.kind != NodeKind::file) return fail(ErrorKind::usage, "read " + path + " in the image: not a regular file");
  if (node.size > limit)
    return fail(ErrorKind::corrupt, "read " + path + " in the image: larger than " + std::to_string(limit) + " bytes");
  std::string content(node.size, '\0');  // holes read as zeros
  const auto take = [&content](uint64_t offset, std::string_view bytes) -> Result<void> {
    content.replace(offset, bytes.size(), bytes);
    return {};
  };
  TRY_CONTEXT("read " + path + " in the image", reader.read(node, take));
  return content;
}

Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options) {
  TRY_ASSIGN(SquashfsReader reader, SquashfsReader::open(image_fd));
  UniqueFd target(openat(target_directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!target) return fail_errno(errno, "open target directory");
  return Extractor(reader, RootDir::from_fd(std::move(target)), options).run();
}

}  // namespace situla
