// What is in a squashfs file? Entries, data and attributes, checked as they are read. The only user of libsquashfs for
// reading.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/stored_file.hpp"
#include "hooks/unpack/image_info.hpp"

namespace situla {

enum class NodeKind { directory, file, link, fifo, socket, block_device, character_device };

/// One inode of the image.
struct ImageNode {
  NodeKind kind = NodeKind::file;
  uint32_t mode = 0;               ///< permission and set-id bits, octal 07777
  uint32_t modification_time = 0;  ///< seconds since 1970
  uint32_t number = 0;             ///< the same number is the same file (hard links)
  uint32_t links = 1;
  uint64_t size = 0;                   ///< bytes, regular files
  size_t blocks = 0;                   ///< data blocks, holes among them; what they lack of the size is the tail
  uint32_t fragment = 0xffffffff;      ///< the compressed block in which the tail is, with those of other files
  std::string target;                  ///< links
  std::shared_ptr<const void> handle;  ///< the library's inode
};

struct ImageEntry {
  std::string name;  ///< one path component: not empty, "." or "..", no '/' and no NUL
  ImageNode node;
};

using ImageAttribute = std::pair<std::string, std::string>;

/// For one thread; several readers of one descriptor may be used at the same time, and nodes of one by another.
class SquashfsReader {
 public:
  /// The descriptor is used as long as the reader lives, not owned.
  static Result<SquashfsReader> open(int image_fd);
  SquashfsReader(SquashfsReader&&) noexcept;
  SquashfsReader& operator=(SquashfsReader&&) noexcept;
  ~SquashfsReader();

  [[nodiscard]] const ImageInfo& info() const;
  Result<ImageNode> root();
  /// Entries in the image's order. At most as many as the image claims to have inodes, or a little more for hard links.
  Result<std::vector<ImageEntry>> list(const ImageNode& directory);
  using Take = std::function<Result<void>(uint64_t, std::string_view)>;
  /// Calls take(offset, bytes) for every block that is not a hole, in order. An error of take ends it.
  Result<void> read(const ImageNode& file, const Take& take);
  /// The same for the blocks from first up to, not including, end; and for what follows the last one.
  Result<void> read_blocks(const ImageNode& file, size_t first, size_t end, const Take& take);
  Result<void> read_tail(const ImageNode& file, const Take& take);
  /// Where the content of a file lies, for those who copy its blocks as they are. Not checked.
  static Result<StoredFile> stored(const ImageNode& file);
  Result<std::vector<ImageAttribute>> attributes(const ImageNode& node);

 private:
  struct State;
  explicit SquashfsReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace situla
