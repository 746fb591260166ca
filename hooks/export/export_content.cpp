#include "hooks/export/export_content.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr size_t kBuffer = size_t{1} << 20U;

uint64_t sum_of(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  uint64_t bytes = 0, end = 0;
  for (const auto& [start, size] : ranges) {
    const uint64_t from = std::max(start, end);
    if (start + size > from) bytes += start + size - from;
    end = std::max(end, start + size);
  }
  return bytes;
}

Error cannot_read(int errnum, const std::string& path) {
  Error error = Error::from_errno(errnum, "read /" + printable(path));
  if (errnum == EACCES)
    error.with_code(ErrorCode::namespaces)
        .with_hint("only with user namespaces can a user read all files of his container; or give yourself the right");
  return error;
}

}  // namespace

/// Content that is wanted, by its place in the donor; small files by that of their fragment.
Result<std::vector<ExportContent::Piece>> ExportContent::pieces_of(const SquashfsDonor& donor) {
  std::vector<Piece> pieces;
  for (const uint32_t inode : tree_.inodes()) {
    const LayerEntry& entry = tree_.entry(inode);
    if (!tree_.of_image(inode) || entry.kind != EntryKind::file || entry.data == kNone) continue;
    const StoredFile stored = writer_.stored(entry.data);
    Piece piece{stored.start, stored.stored_bytes(), entry.data};
    if (!donor.contains(piece.start, piece.bytes))
      return fail(Error(ErrorKind::corrupt, donor.where() + ": names blocks that are not there")
                      .with_code(ErrorCode::image_damaged));
    if (piece.bytes == 0 && stored.fragment != StoredFile::kNoFragment) {
      TRY_ASSIGN(const StoredFragment fragment, donor.fragment(stored.fragment));
      piece.start = fragment.start;
    }
    pieces.push_back(piece);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return std::pair(a.start, a.data) < std::pair(b.start, b.data); });
  return pieces;
}

Result<uint64_t> ExportContent::keep(const SquashfsDonor& donor) {
  TRY_ASSIGN(const std::vector<Piece> pieces, pieces_of(donor));
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  std::set<uint32_t> fragments;
  for (const Piece& piece : pieces) {
    ranges.emplace_back(piece.start, piece.bytes);
    const uint32_t number = writer_.stored(piece.data).fragment;
    if (number == StoredFile::kNoFragment || !fragments.insert(number).second) continue;
    TRY_ASSIGN(const StoredFragment fragment, donor.fragment(number));
    ranges.emplace_back(fragment.start, stored_size(fragment.size));
  }
  std::sort(ranges.begin(), ranges.end());
  const uint64_t used = sum_of(ranges);
  const auto unused = static_cast<double>(donor.data_end() - std::min(donor.data_end(), used));
  if (unused > kMostUnused * static_cast<double>(donor.data_end())) return keep_pieces(donor, pieces);
  TRY(writer_.share(donor, [&](uint64_t copied) { progress_.bytes(copied, donor.data_end()); }));
  return donor.data_end();
}

Result<uint64_t> ExportContent::keep_pieces(const SquashfsDonor& donor, const std::vector<Piece>& pieces) {
  constexpr size_t kAtOnce = 16384;
  std::vector<uint32_t> numbers;  // by the number it was referred to with
  uint64_t bytes = 0;
  for (size_t begin = 0; begin < pieces.size(); begin += kAtOnce) {
    const size_t end = std::min(begin + kAtOnce, pieces.size());
    std::vector<StoredFile> files;
    for (size_t i = begin; i < end; ++i) {
      files.push_back(writer_.stored(pieces[i].data));
      bytes += pieces[i].bytes;
    }
    TRY_ASSIGN(const std::vector<uint32_t> taken, writer_.adopt(donor, files));
    for (size_t i = begin; i < end; ++i) {
      if (pieces[i].data >= numbers.size()) numbers.resize(pieces[i].data + size_t{1}, kNone);
      numbers[pieces[i].data] = taken[i - begin];
    }
  }
  for (const uint32_t inode : tree_.inodes()) {
    LayerEntry& entry = tree_.entry(inode);
    if (tree_.of_image(inode) && entry.kind == EntryKind::file && entry.data != kNone)
      entry.data = numbers.at(entry.data);
  }
  return bytes;
}

bool ExportContent::pending(uint32_t inode) {
  const LayerEntry& entry = tree_.entry(inode);
  return entry.kind == EntryKind::file && entry.size > 0 && entry.data == kNone;
}

void ExportContent::start_compressing(bool image) {
  to_compress_ = compressed_;
  for (const uint32_t inode : tree_.inodes())
    if ((image ? tree_.of_image(inode) : tree_.of_directory(inode)) && pending(inode))
      to_compress_ += tree_.entry(inode).size;
}

Result<void> ExportContent::append(std::string_view bytes) {
  TRY(writer_.append(bytes));
  compressed_ += bytes.size();
  progress_.bytes(std::min(compressed_, to_compress_), to_compress_);
  if (progress_.cancelled()) return fail(ErrorKind::cancelled, "cancelled");
  return {};
}

Result<void> ExportContent::compress_image(ImageAccess& image) {
  start_compressing(true);
  const RootTree& names = tree_.names();
  TRY_ASSIGN(const StoredInode top, image.top());
  std::vector<std::pair<StoredInode, uint32_t>> open{{top, RootTree::kRoot}};
  while (!open.empty()) {
    const auto [directory, node] = open.back();
    open.pop_back();
    std::map<std::string_view, uint32_t> children;
    for (const uint32_t child : names.children(node)) children.emplace(names.name(child), child);
    TRY_ASSIGN(const std::shared_ptr<const Listing> listing, image.list(directory));
    for (const StoredName& name : *listing) {
      const auto child = children.find(name.name);
      if (child == children.end()) continue;
      TRY_ASSIGN(const StoredInode stored, image.inode(name.inode));
      const uint32_t inode = names.node(child->second).inode;
      if (S_ISDIR(stored.mode) && names.is_directory(child->second))
        open.emplace_back(stored, child->second);
      else if (S_ISREG(stored.mode) && tree_.of_image(inode) && pending(inode))
        TRY_CONTEXT("read " + printable(name.name) + " of the image",
                    compress_image_file(image, stored, tree_.entry(inode)));
    }
  }
  return {};
}

Result<void> ExportContent::compress_image_file(ImageAccess& image, const StoredInode& file, LayerEntry& entry) {
  static const std::string zeros(kBuffer, '\0');
  uint64_t at = 0;
  const auto fill = [&](uint64_t end) -> Result<void> {
    for (; at < end; at += std::min<uint64_t>(end - at, kBuffer))
      TRY(append(std::string_view(zeros).substr(0, std::min<uint64_t>(end - at, kBuffer))));
    return {};
  };
  TRY_ASSIGN(entry.data, writer_.begin_file(file.size));
  const auto take = [&](uint64_t offset, std::string_view bytes) -> Result<void> {
    TRY(fill(offset));
    at += bytes.size();
    return append(bytes);
  };
  TRY(image.read(file, 0, file.size, take));
  TRY(fill(file.size));
  return writer_.end_file();
}

Result<void> ExportContent::compress_directory(const RootDir& root) {
  start_compressing(false);
  std::vector<std::pair<std::string, uint32_t>> open{{"", RootTree::kRoot}};
  while (!open.empty()) {
    const auto [path, node] = std::move(open.back());
    open.pop_back();
    TRY(compress_names(root, path, node, open));
  }
  return {};
}

/// Only directories that the upper layer has can have anything of it.
Result<void> ExportContent::compress_names(const RootDir& root, const std::string& path, uint32_t node,
                                           std::vector<std::pair<std::string, uint32_t>>& open) {
  const RootTree& names = tree_.names();
  UniqueFd directory;
  for (const uint32_t child : names.children(node)) {
    const uint32_t inode = names.node(child).inode;
    const std::string name(names.name(child));
    if (!tree_.of_directory(inode)) continue;
    if (names.is_directory(child)) open.emplace_back(path.empty() ? name : path + "/" + name, child);
    if (!pending(inode)) continue;
    if (!directory) {
      auto opened = root.open_at(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!opened && !vanished(opened.error().errnum())) return fail(cannot_read(opened.error().errnum(), path));
      // It was removed meanwhile; that its files are missing is found one by one.
      if (opened) directory = std::move(*opened);
    }
    TRY(compress_file(directory.get(), name, path.empty() ? name : path + "/" + name, child));
  }
  return {};
}

Result<void> ExportContent::compress_file(int directory, const std::string& name, const std::string& path,
                                          uint32_t node) {
  const UniqueFd file(openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  const bool gone = !file && (vanished(errno) || errno == EBADF || errno == ENXIO);
  if (!file && !gone) return fail(cannot_read(errno, path));
  if (file && fstat(file.get(), &status) != 0) return fail(cannot_read(errno, path));
  if (gone || !S_ISREG(status.st_mode)) {
    tree_.note(LogLevel::warning, "files vanish while they are exported", path);
    tree_.names().remove(node);
    return {};
  }
  LayerEntry& entry = tree_.entry(tree_.names().node(node).inode);
  // What is written to it from now on is left out.
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size != entry.size) tree_.note(LogLevel::warning, "files change while they are exported", path);
  entry.size = size;
  if (size == 0) return {};
  TRY_ASSIGN(entry.data, writer_.begin_file(size));
  static std::string buffer(kBuffer, '\0');
  for (uint64_t left = size; left > 0;) {
    const ssize_t count = read(file.get(), buffer.data(), std::min<uint64_t>(left, buffer.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(cannot_read(errno, path));
    if (count == 0) {
      tree_.note(LogLevel::warning, "files change while they are exported", path);
      break;
    }
    TRY(append(std::string_view(buffer.data(), static_cast<size_t>(count))));
    left -= static_cast<uint64_t>(count);
  }
  return writer_.end_file();
}

}  // namespace situla
