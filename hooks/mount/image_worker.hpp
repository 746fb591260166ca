// What is the answer to one of the kernel's questions about images? FUSE, as far as files that never change need it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/unpack/image_access.hpp"
#include "hooks/unpack/image_owners.hpp"

namespace situla {

/// An image and what of it is shown. Its threads share it.
class ServedImage {
 public:
  /// file: of the image, if it is to be closed with this object.
  ServedImage(ImageAccess image, const StoredInode& top, UniqueFd file = UniqueFd())
      : top_(top), file_(std::move(file)), image_(std::move(image)) {}

  [[nodiscard]] const StoredInode& top() const { return top_; }
  [[nodiscard]] uint32_t block_bytes() const { return image_.info().block_size; }
  /// For one thread, until it gives it back: as many are made as threads have been busy with this image at once, so
  /// that one that few read takes little memory.
  Result<ImageAccess> take();
  void give_back(ImageAccess access);

 private:
  const StoredInode top_;
  const UniqueFd file_;
  const ImageAccess image_;
  std::mutex mutex_;
  std::vector<ImageAccess> idle_;
};

/// What is on one device: an image, or a directory with any number of them, which are called 1, 2 and so on. That is
/// listed by one process, to tell the kernel of many images at once: from its beginning it has those that no listing
/// had before. Owners are ids of the user namespace in which the mount was made.
class ServedImages {
 public:
  /// whole: null for a directory.
  explicit ServedImages(ImageOwners owners, std::shared_ptr<ServedImage> whole = nullptr)
      : owners_(std::move(owners)), whole_(std::move(whole)) {}

  [[nodiscard]] const ImageOwners& owners() const { return owners_; }
  [[nodiscard]] const std::shared_ptr<ServedImage>& whole() const { return whole_; }
  /// The next one of the directory. Null: it cannot be had.
  void add(std::shared_ptr<ServedImage> image);
  [[nodiscard]] size_t count() const;
  /// Null: there is none of that number.
  [[nodiscard]] std::shared_ptr<ServedImage> find(uint64_t number) const;
  /// Whether the kernel can be told of it: beside the image's number there are 48 bits.
  static constexpr bool can_name(InodeRef ref) { return ref >> 48U == 0; }

  std::atomic<bool> no_opendir = false;  ///< what the kernel said at the beginning
  std::atomic<uint64_t> listed = 0;      ///< number of the last image that a listing had

 private:
  const ImageOwners owners_;
  const std::shared_ptr<ServedImage> whole_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ServedImage>> images_;
};

/// One thread of the server. Requests are independent of each other. Answers are complete and never change, so the
/// kernel is told to keep them: each name, inode and page is asked for once, as long as its memory lasts. Answers until
/// the mount is gone; an error when the device (an open /dev/fuse) cannot be read.
Result<void> answer_requests(ServedImages& images, int device);

}  // namespace situla
