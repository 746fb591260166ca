// read_image_info() and read_image_file(): what an image says about itself, without extracting it.
#include "hooks/unpack/read_image.hpp"

#include <algorithm>
#include <vector>

#include "common/base/text.hpp"
#include "hooks/unpack/squashfs_reader.hpp"

namespace situla {
namespace {

constexpr int kMaxLinks = 40;

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

}  // namespace situla
