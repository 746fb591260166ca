#include "hooks/unpack/read_image.hpp"

#include <algorithm>
#include <vector>

#include <sys/stat.h>

#include "common/base/text.hpp"

namespace situla {

Result<ImageInfo> read_image_info(int image_fd) {
  TRY_ASSIGN(ImageAccess image, ImageAccess::open(image_fd));
  ImageInfo info = image.info();
  TRY_ASSIGN(const StoredInode top, image.top());
  info.root_mode = top.mode & 07777U;
  TRY_ASSIGN(const std::vector<uint32_t> ids, image.owners());
  info.names_owners = names_owners(ids);
  return info;
}

bool names_owners(const std::vector<uint32_t>& ids) {
  const auto is_root = [](uint32_t id) { return id == 0; };
  return std::any_of(ids.begin(), ids.end(), is_root) && !std::all_of(ids.begin(), ids.end(), is_root);
}

Result<StoredInode> find_in_image(ImageAccess& image, const std::string& path) {
  constexpr int kMaxLinks = 40;
  const auto failed = [&path](int errnum) { return fail_errno(errnum, "open " + path + " in the image"); };
  TRY_ASSIGN(const StoredInode top, image.top());
  std::vector<StoredInode> stack = {top};
  std::vector<std::string> left;  // last component first
  const auto push = [&left](std::string_view text) {
    const auto parts = split_nonempty(text, '/');
    left.insert(left.end(), parts.rbegin(), parts.rend());
  };
  push(path);
  for (int links = 0; !left.empty();) {
    const std::string name = std::move(left.back());
    left.pop_back();
    if (name == ".." && stack.size() > 1) stack.pop_back();
    if (name == "." || name == "..") continue;
    if (!S_ISDIR(stack.back().mode)) return failed(ENOTDIR);
    TRY_ASSIGN(const std::shared_ptr<const Listing> names, image.list(stack.back()));
    const StoredName* found = find_name(*names, name);
    if (found == nullptr) return failed(ENOENT);
    TRY_ASSIGN(const StoredInode inode, image.inode(found->inode));
    if (!S_ISLNK(inode.mode)) {
      stack.push_back(inode);
      continue;
    }
    if (++links > kMaxLinks) return failed(ELOOP);
    TRY_ASSIGN(const std::string target, image.link_target(inode));
    if (target.starts_with('/')) stack.resize(1);
    push(target);
  }
  return stack.back();
}

Result<std::string> read_image_file(int image_fd, const std::string& path, size_t limit) {
  TRY_ASSIGN(ImageAccess image, ImageAccess::open(image_fd));
  TRY_ASSIGN(const StoredInode file, find_in_image(image, path));
  if (!S_ISREG(file.mode)) return fail(ErrorKind::usage, "read " + path + " in the image: not a regular file");
  if (file.size > limit)
    return fail(ErrorKind::corrupt, "read " + path + " in the image: larger than " + std::to_string(limit) + " bytes");
  std::string content(file.size, '\0');  // holes read as zeros
  const auto take = [&content](uint64_t offset, std::string_view bytes) -> Result<void> {
    content.replace(offset, bytes.size(), bytes);
    return {};
  };
  TRY_CONTEXT("read " + path + " in the image", image.read(file, 0, file.size, take));
  return content;
}

}  // namespace situla
