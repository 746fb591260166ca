#include "hooks/mount/image_server.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/socket.hpp"
#include "hooks/mount/image_worker.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

constexpr unsigned kMostThreads = 4;        ///< for one image
constexpr unsigned kMostThreadsForAll = 8;  ///< for any number of them
constexpr size_t kLargeCaches = 8;          ///< of several images the first ones have caches of the usual size

/// What nearly every command needs first. Paths that an image lacks cost nothing.
constexpr std::array<const char*, 7> kNeededFirst = {
    "bin/sh",          "lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu/libc.so.6",
    "lib64/libc.so.6", "lib/ld-linux-aarch64.so.1",  "lib/aarch64-linux-gnu/libc.so.6",
    "etc/profile"};
constexpr uint64_t kMostReadAhead = uint64_t{4} << 20U;  ///< bytes of one file

/// While the caller is still mounting: the blocks that its command is going to wait for.
void read_ahead(ImageAccess image) {
  const uint64_t block_bytes = image.info().block_size;
  for (const char* path : kNeededFirst) {
    const auto inode = find_in_image(image, path);  // errors are of no interest: whoever really asks is told
    if (!inode || !S_ISREG(inode->mode)) continue;
    for (uint64_t at = 0; at < std::min(inode->size, kMostReadAhead); at += block_bytes)
      if (!image.read(*inode, at, block_bytes)) break;
  }
}

unsigned threads_for(unsigned most) {
  return std::clamp(node_processors(), 2U, most);
}

/// Of an image that was given to serve_images().
Result<std::shared_ptr<ServedImage>> open_served(UniqueFd file, const std::string& inside, ImageCaches caches) {
  TRY_ASSIGN(ImageAccess access, ImageAccess::open(file.get(), caches));
  TRY_ASSIGN(const StoredInode top, inside == "/" ? access.top() : find_in_image(access, inside));
  if (!ServedImages::can_name(top.ref)) return fail(ErrorKind::corrupt, "the image's root lies outside of it");
  return std::make_shared<ServedImage>(std::move(access), top, std::move(file));
}

}  // namespace

unsigned node_processors() {
  static const unsigned count = std::thread::hardware_concurrency();
  return count;
}

Result<void> serve_requests(const ImageAccess& image, int device, const ImageOwners& owners) {
  TRY_ASSIGN(ImageAccess shared, image.another());
  TRY_ASSIGN(ImageAccess ahead, image.another());
  TRY_ASSIGN(const StoredInode top, shared.top());
  ServedImages images(owners, std::make_shared<ServedImage>(std::move(shared), top));
  // One that is busy with a large block must not keep the others' questions waiting.
  std::vector<std::thread> threads;
  try {
    for (unsigned i = 1; i < threads_for(kMostThreads); ++i)
      threads.emplace_back([&] { (void)answer_requests(images, device); });
    threads.emplace_back([&ahead] { read_ahead(std::move(ahead)); });
  } catch (const std::system_error&) {
    // No more threads: those that there are serve as well, only slower.
  }
  Result<void> done = answer_requests(images, device);
  for (std::thread& thread : threads) thread.join();
  return done;
}

Result<void> serve_images(int socket, int device, uid_t uid, gid_t gid) {
  ServedImages images(ImageOwners(uid, gid));
  std::vector<std::thread> threads;
  const auto start_threads = [&]() -> Result<void> {
    try {
      while (threads.size() < threads_for(kMostThreadsForAll))
        threads.emplace_back([&] { (void)answer_requests(images, device); });
    } catch (const std::system_error& error) {
      if (threads.empty()) return fail_errno(error.code().value(), "start a thread");
    }
    return {};
  };
  while (true) {
    auto packet = receive_packet(socket, kMostPacketBytes);
    if (!packet || !*packet) break;
    // Before there is a mount, which the first image says that there is, the device has nothing to read.
    if (threads.empty()) TRY(start_threads());
    std::string answer;
    std::string_view rest = (*packet)->bytes;
    for (UniqueFd& file : (*packet)->fds) {
      const ImageCaches caches = images.count() < kLargeCaches ? ImageCaches::usual : ImageCaches::small;
      const std::string inside(rest.substr(0, rest.find('\0')));
      rest.remove_prefix(std::min(inside.size() + 1, rest.size()));
      auto image = open_served(std::move(file), inside, caches).value_or(nullptr);
      answer += image ? kIsThere : 'n';
      images.add(std::move(image));
    }
    if (!send_packet(socket, answer)) break;
  }
  close(socket);  // nobody waits for an answer that does not come
  for (std::thread& thread : threads) thread.join();
  return {};
}

}  // namespace situla
