#include "hooks/export/export_tree.hpp"

#include <algorithm>
#include <array>
#include <climits>

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/export/file_capability.hpp"

namespace situla {
namespace {

using Attributes = std::vector<std::pair<std::string, std::string>>;

constexpr uint32_t kPermissions = 07777;
constexpr uint32_t kNobody = 65534;
/// Of enroot, of enroot's bundles, and our own.
constexpr std::array<std::string_view, 5> kNeverExported = {".lock", ".enroot", ".situla", kIdentityFile, kRangeFile};

std::string child_path(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

/// Values of a file that may be a symbolic link. Those that cannot be read are left out.
Result<Attributes> attributes_of(const std::string& place, const std::string& operand) {
  std::string names(1024, '\0');
  ssize_t size = llistxattr(place.c_str(), names.data(), names.size());
  if (size < 0 && errno == ERANGE) {
    names.resize(XATTR_LIST_MAX);
    size = llistxattr(place.c_str(), names.data(), names.size());
  }
  if (size < 0 && (errno == ENOTSUP || errno == ENOENT)) return Attributes{};
  if (size < 0) return fail_errno(errno, "list the attributes of " + operand);
  names.resize(static_cast<size_t>(size));
  Attributes attributes;
  std::string value(XATTR_SIZE_MAX, '\0');
  for (const std::string_view name : split_nonempty(names, '\0')) {
    const ssize_t length = lgetxattr(place.c_str(), std::string(name).c_str(), value.data(), value.size());
    if (length >= 0) attributes.emplace_back(name, value.substr(0, static_cast<size_t>(length)));
  }
  std::sort(attributes.begin(), attributes.end());
  return attributes;
}

std::optional<EntryKind> kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return EntryKind::directory;
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISLNK(mode)) return EntryKind::symlink;
  if (S_ISFIFO(mode)) return EntryKind::fifo;
  return std::nullopt;
}

/// How enroot knows a mount point that it made: nothing is in it, and nobody may do anything with it.
bool is_mount_point(const struct stat& status) {
  if ((status.st_mode & kPermissions) != 0) return false;
  return S_ISDIR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size == 0);
}

}  // namespace

void ExportTree::note(LogLevel level, const std::string& what, const std::string& path) {
  if (noted_.insert(what).second) log_.write(level, what + ", for example /" + printable(path));
}

Result<uint32_t> ExportTree::add_inode(const LayerEntry& entry) {
  if (table_.full()) return fail(ErrorKind::unsupported, "the container has too many files");
  return table_.add_made(entry);
}

/// What the container's user saw.
Result<void> ExportTree::take_image_ids(ImageAccess& image) {
  if (!ids_.range()) return {};
  TRY_ASSIGN(image_ids_, image.owners());
  if (!names_owners(image_ids_)) image_ids_.clear();
  std::replace_if(
      image_ids_.begin(), image_ids_.end(), [](uint32_t id) { return id > IdRange::kCount; }, kNobody);
  return {};
}

Result<uint32_t> ExportTree::add_found(const Found& found) {
  TRY_ASSIGN(const uint32_t inode, add_inode(found.entry));
  owners_.set(inode, ids_.image_uid(found.status.st_uid), ids_.image_gid(found.status.st_gid));
  return inode;
}

Result<void> ExportTree::add_image(ImageAccess& image, Content content) {
  TRY(take_image_ids(image));
  image_begin_ = static_cast<uint32_t>(table_.size());
  TRY_ASSIGN(const StoredInode top, image.top());
  TRY_ASSIGN(const uint32_t inode, image_inode(image, top, "", content));
  tree_.put_root(inode);
  open_image_.push_back({top, RootTree::kRoot, ""});
  while (!open_image_.empty()) {
    const ImageDirectory directory = std::move(open_image_.back());
    open_image_.pop_back();
    TRY_CONTEXT("read /" + printable(directory.path) + " of the image", list_image(image, directory, content));
  }
  image_links_.clear();
  seen_directories_.clear();
  return {};
}

Result<void> ExportTree::list_image(ImageAccess& image, const ImageDirectory& directory, Content content) {
  if (!seen_directories_.insert(directory.inode.number).second)
    return fail(Error(ErrorKind::corrupt, "a directory with two names").with_code(ErrorCode::image_damaged));
  TRY_ASSIGN(const std::shared_ptr<const Listing> names, image.list(directory.inode));
  for (const StoredName& name : *names) {
    const std::string path = child_path(directory.path, name.name);
    TRY_ASSIGN(const StoredInode stored, image.inode(name.inode));
    if (!kind_of(stored.mode)) {
      note(LogLevel::info, "devices and sockets are left out", path);
      continue;
    }
    if (S_ISREG(stored.mode) && stored.size == 0 && (stored.mode & kPermissions) == 0) continue;
    if (tree_.child(directory.node, name.name) != kNone)
      return fail(Error(ErrorKind::corrupt, "a name that is there twice").with_code(ErrorCode::image_damaged));
    TRY_ASSIGN(const uint32_t inode, image_inode(image, stored, path, content));
    TRY_ASSIGN(const uint32_t node, tree_.put(directory.node, name.name, inode));
    if (S_ISDIR(stored.mode)) open_image_.push_back({stored, node, path});
  }
  return {};
}

Result<uint32_t> ExportTree::image_inode(ImageAccess& image, const StoredInode& stored, const std::string& path,
                                         Content content) {
  const bool shared = stored.links > 1 && !S_ISDIR(stored.mode);
  if (const auto known = image_links_.find(stored.number); shared && known != image_links_.end()) return known->second;
  LayerEntry entry;
  entry.kind = *kind_of(stored.mode);
  entry.mode = static_cast<uint16_t>(stored.mode & kPermissions);
  entry.mtime = stored.modification_time;
  if (entry.kind == EntryKind::file) entry.size = stored.size;
  if (entry.kind == EntryKind::symlink) {
    TRY_ASSIGN(const std::string target, image.link_target(stored));
    TRY_ASSIGN(entry.data, table_.add_text(target));
  }
  TRY_ASSIGN(Attributes attributes, image.attributes(stored));
  std::erase_if(attributes, [](const auto& attribute) { return !belongs_in_image(attribute.first); });
  if (!attributes.empty()) {
    TRY_ASSIGN(entry.xattrs, writer_.add_xattrs(attributes));
  }
  if (entry.kind == EntryKind::file && entry.size > 0 && content == Content::referred) {
    TRY_ASSIGN(const StoredFile place, image.stored(stored));
    TRY_ASSIGN(entry.data, writer_.refer(place));
  }
  auto inode = add_inode(entry);
  if (!inode) return fail(std::move(inode).error().with_context("/" + printable(path)));
  const auto id = [&](uint16_t place) { return place < image_ids_.size() ? image_ids_[place] : 0; };
  owners_.set(*inode, id(stored.owner), id(stored.group));
  if (shared) image_links_.emplace(stored.number, *inode);
  return inode;
}

Result<void> ExportTree::add_directory(const RootDir& root, Directory kind) {
  if (image_begin_ == 0) image_begin_ = static_cast<uint32_t>(table_.size());
  directory_begin_ = static_cast<uint32_t>(table_.size());
  OpenDirectory above{root.fd(), RootTree::kRoot, "", kind == Directory::upper_layer};
  Found found;
  if (fstat(root.fd(), &found.status) != 0) return fail_errno(errno, "inspect the container's root");
  TRY(read_attributes(fd_path(root.fd()), above, "", found));
  found.entry.kind = EntryKind::directory;
  found.entry.mode = static_cast<uint16_t>(found.status.st_mode & kPermissions);
  found.entry.mtime = static_cast<uint32_t>(std::clamp<int64_t>(found.status.st_mtime, 0, UINT32_MAX));
  TRY_ASSIGN(const uint32_t inode, add_found(found));
  tree_.put_root(inode);
  open_.emplace_back("", RootTree::kRoot);
  while (!open_.empty()) {
    const auto [path, node] = std::move(open_.back());
    open_.pop_back();
    TRY(list_directory(root, path, node, above.overlay));
  }
  end_ = static_cast<uint32_t>(table_.size());
  directory_links_.clear();
  return {};
}

Result<void> ExportTree::list_directory(const RootDir& root, const std::string& path, uint32_t node, bool overlay) {
  const std::string operand = "/" + printable(path);
  auto opened = root.open_at(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!opened && vanished(opened.error().errnum())) {
    note(LogLevel::warning, "files vanish while they are exported", path);
    return {};
  }
  if (!opened) return fail(std::move(opened).error().with_context("read " + operand));
  TRY_ASSIGN(std::vector<std::string> names, situla::list_directory(opened->get(), operand));
  std::sort(names.begin(), names.end());
  const OpenDirectory directory{opened->get(), node, path, overlay};
  for (const std::string& name : names) TRY(add_name(directory, name));
  return {};
}

Result<void> ExportTree::add_name(const OpenDirectory& directory, const std::string& name) {
  const std::string path = child_path(directory.path, name);
  Found found;
  if (fstatat(directory.fd, name.c_str(), &found.status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) return fail_errno(errno, "inspect /" + printable(path));
    note(LogLevel::warning, "files vanish while they are exported", path);
    return {};
  }
  const mode_t mode = found.status.st_mode;
  const auto kind = kind_of(mode);
  if (S_ISCHR(mode) && found.status.st_rdev == makedev(0, 0) && directory.overlay) {
    hide(directory.node, name);
    return {};
  }
  if (!kind || is_mount_point(found.status)) {
    if (!kind) note(LogLevel::info, "devices and sockets are left out", path);
    hide(directory.node, name);
    return {};
  }
  found.entry.kind = *kind;
  found.entry.mode = *kind == EntryKind::symlink ? uint16_t{0777} : static_cast<uint16_t>(mode & kPermissions);
  found.entry.mtime = static_cast<uint32_t>(std::clamp<int64_t>(found.status.st_mtime, 0, UINT32_MAX));
  if (*kind == EntryKind::file) found.entry.size = static_cast<uint64_t>(found.status.st_size);
  const std::string place = fd_path(directory.fd) + "/" + name;
  TRY(read_attributes(place, directory, path, found));
  if (found.whiteout) {
    hide(directory.node, name);
    return {};
  }
  return *kind == EntryKind::directory ? add_subdirectory(directory, name, found) : add_leaf(directory, name, found);
}

Result<void> ExportTree::add_subdirectory(const OpenDirectory& directory, const std::string& name, const Found& found) {
  TRY_ASSIGN(const uint32_t inode, add_found(found));
  TRY_ASSIGN(const uint32_t node, tree_.put(directory.node, name, inode));
  if (found.opaque) tree_.remove_children(node);
  open_.emplace_back(child_path(directory.path, name), node);
  return {};
}

Result<void> ExportTree::add_leaf(const OpenDirectory& directory, const std::string& name, const Found& found) {
  const std::pair<uint64_t, uint64_t> number{found.status.st_dev, found.status.st_ino};
  uint32_t inode = kNone;
  if (found.status.st_nlink > 1)
    if (const auto known = directory_links_.find(number); known != directory_links_.end()) inode = known->second;
  if (inode == kNone) {
    Found leaf = found;
    if (leaf.entry.kind == EntryKind::symlink) TRY(read_target(directory, name, leaf.entry));
    TRY_ASSIGN(inode, add_found(leaf));
    if (found.status.st_nlink > 1) directory_links_.emplace(number, inode);
  }
  TRY(tree_.put(directory.node, name, inode));
  return {};
}

Result<void> ExportTree::read_target(const OpenDirectory& directory, const std::string& name, LayerEntry& entry) {
  std::array<char, PATH_MAX> target{};
  ssize_t size = readlinkat(directory.fd, name.c_str(), target.data(), target.size());
  if (size < 0 && (errno == EINVAL || vanished(errno))) {  // something else has its name now
    note(LogLevel::warning, "files vanish while they are exported", child_path(directory.path, name));
    size = static_cast<ssize_t>(std::string_view("vanished").copy(target.data(), target.size()));
  }
  if (size < 0) return fail_errno(errno, "read the link /" + printable(child_path(directory.path, name)));
  TRY_ASSIGN(entry.data, table_.add_text(std::string_view(target.data(), static_cast<size_t>(size))));
  return {};
}

Result<void> ExportTree::read_attributes(const std::string& place, const OpenDirectory& directory,
                                         const std::string& path, Found& found) {
  TRY_ASSIGN(Attributes attributes, attributes_of(place, "/" + printable(path)));
  if (attributes.empty()) return {};
  for (const auto& [name, value] : attributes) {
    if (!directory.overlay) break;
    found.opaque = found.opaque || (name == "user.overlay.opaque" && value == "y");
    found.whiteout = found.whiteout || (name == "user.overlay.whiteout" && S_ISREG(found.status.st_mode));
    if (name == "user.overlay.metacopy" || name == "user.overlay.redirect")
      return fail(ErrorKind::unsupported, "export /" + printable(path) + ": its content lies elsewhere (" + name +
                                              "), which only an overlay mounted by somebody else does");
  }
  std::erase_if(attributes, [](const auto& attribute) { return !belongs_in_image(attribute.first); });
  if (attributes.empty()) return {};
  for (auto& [name, value] : attributes)
    if (name == "security.capability") value = capability_in_image(std::move(value), ids_);
  TRY_ASSIGN(found.entry.xattrs, writer_.add_xattrs(attributes));
  return {};
}

void ExportTree::hide(uint32_t directory, const std::string& name) {
  if (const uint32_t node = tree_.child(directory, name); node != kNone) tree_.remove(node);
}

void ExportTree::finish() {
  for (const std::string_view name : kNeverExported) hide(RootTree::kRoot, std::string(name));
  tree_.finish();
}

std::vector<uint32_t> ExportTree::inodes() const {
  const std::vector<bool> used = tree_.used();
  std::vector<uint32_t> inodes;
  for (uint32_t inode = 0; inode < used.size(); ++inode)
    if (used[inode]) inodes.push_back(inode);
  return inodes;
}

}  // namespace situla
