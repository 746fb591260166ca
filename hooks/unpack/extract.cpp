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
#include "hooks/unpack/squashfs_reader.hpp"

namespace situla {
namespace {

/// Each level holds a descriptor; no real file system image comes near this.
constexpr int kMaxDepth = 400;

class Extractor {
 public:
  Extractor(int image_fd, SquashfsReader& reader, RootDir root, const ExtractOptions& options)
      : reader_(reader),
        root_(std::move(root)),
        options_(options),
        notes_(options.log),
        writers_(image_fd, reader, options, notes_) {}

  Result<void> run() {
    TRY_ASSIGN(const ImageNode top, reader_.root());
    TRY(directory_content(root_.fd(), "", top, 0));
    TRY(writers_.finish());
    finished_.push_back({"", top.mode, top.modification_time});
    return finish_directories();
  }

 private:
  struct Finished {
    std::string path;
    uint32_t mode;
    uint32_t modification_time;
  };

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
        TRY(file(parent, name, path, node));
        break;
      case NodeKind::link:
        TRY_CONTEXT(what, symbolic_link(parent, name, node));
        break;
      case NodeKind::fifo:
        TRY_CONTEXT(what, fifo(parent, name, node));
        break;
      case NodeKind::socket:
        notes_.add("sockets are left out", path);
        return {};
      case NodeKind::block_device:
      case NodeKind::character_device:
        notes_.add("device nodes are left out", path);
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
    TRY_CONTEXT(what, extract_attributes(reader_, fd.get(), path, node, notes_));
    TRY(directory_content(fd.get(), path, node, depth + 1));
    // Modes last: a directory without write permission could not be filled, nor be reached for a later hard link.
    finished_.push_back({path, node.mode, node.modification_time});
    return {};
  }

  /// Made here, so that hard links find it; filled by whoever has time.
  Result<void> file(int parent, const std::string& name, const std::string& path, const ImageNode& node) {
    UniqueFd fd(openat(parent, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(errno, "extract " + printable(path) + ": create");
    return writers_.add(std::move(fd), path, node);
  }

  Result<void> symbolic_link(int parent, const std::string& name, const ImageNode& node) {
    if (symlinkat(node.target.c_str(), parent, name.c_str()) != 0) return fail_errno(errno, "create link");
    const timespec time{static_cast<time_t>(node.modification_time), 0};
    const timespec times[2] = {time, time};
    if (utimensat(parent, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return fail_errno(errno, "set time");
    return {};
  }

  Result<void> fifo(int parent, const std::string& name, const ImageNode& node) {
    if (mkfifoat(parent, name.c_str(), 0600) != 0) return fail_errno(errno, "create fifo");
    // Opened for both ends, or the open would wait for a partner.
    const UniqueFd fd(openat(parent, name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return fail_errno(errno, "open fifo");
    return finish_extracted(fd.get(), node, options_.keep_set_id);
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
      TRY_CONTEXT(what, finish_extracted(fd->get(), node, options_.keep_set_id));
    }
    return {};
  }

  SquashfsReader& reader_;
  RootDir root_;
  const ExtractOptions& options_;
  std::unordered_map<uint32_t, std::string> linked_;
  std::unordered_set<uint32_t> seen_directories_;
  std::vector<Finished> finished_;
  ExtractNotes notes_;
  FileWriters writers_;
};

}  // namespace

Result<void> extract_image(int image_fd, int target_directory_fd, const ExtractOptions& options) {
  TRY_ASSIGN(SquashfsReader reader, SquashfsReader::open(image_fd));
  UniqueFd target(openat(target_directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!target) return fail_errno(errno, "open target directory");
  return Extractor(image_fd, reader, RootDir::from_fd(std::move(target)), options).run();
}

}  // namespace situla
