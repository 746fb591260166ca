#include "hooks/mount/image_server.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/socket.hpp"
#include "hooks/mount/image_worker.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

constexpr unsigned kMostThreads = 4;        ///< for one image
constexpr unsigned kMostThreadsForAll = 8;  ///< for any number of them
constexpr size_t kMostNumbers = 256;        ///< bytes of served_image_text()

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

/// Until the mount is gone, or the device cannot be read.
Result<void> answer_all(ImageWorker& worker) {
  while (true) {
    TRY_ASSIGN(const Taken taken, worker.take());
    if (taken == Taken::gone) return {};
    if (taken == Taken::request) worker.answer();
  }
}

/// One of the images of serve_images(). Its device does not block: a thread that has read a request lets the next one
/// wake another thread before it answers.
class PooledImage {
 public:
  static Result<std::shared_ptr<PooledImage>> open(std::string_view text, UniqueFd image, UniqueFd device) {
    const auto words = split_words(text);
    const auto number = [&](size_t at) { return at < words.size() ? parse_unsigned(words[at]) : std::nullopt; };
    const auto root = number(0), uid = number(1), gid = number(2);
    if (!root || !uid || !gid) return fail(ErrorKind::corrupt, "an image to serve without its numbers");
    if (fcntl(device.get(), F_SETFL, O_RDWR | O_NONBLOCK) != 0) return fail_errno(errno, "make /dev/fuse non-blocking");
    TRY_ASSIGN(ImageAccess access, ImageAccess::open(image.get()));
    return std::make_shared<PooledImage>(std::move(access), *root, static_cast<uid_t>(*uid), static_cast<gid_t>(*gid),
                                         std::move(image), std::move(device));
  }
  PooledImage(ImageAccess access, InodeRef root, uid_t uid, gid_t gid, UniqueFd image, UniqueFd device)
      : image_(std::move(image)),
        device_(std::move(device)),
        served_(std::move(access), root, device_.get(), uid, gid) {}

  [[nodiscard]] int device() const { return device_.get(); }
  /// As many as threads have been busy with this image at once, so that one that few read takes little memory.
  Result<ImageWorker> worker() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return ImageWorker::of(served_);
    ImageWorker worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  void give_back(ImageWorker worker) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));
  }

 private:
  UniqueFd image_, device_;
  ServedImage served_;
  std::mutex mutex_;
  std::vector<ImageWorker> idle_;
};

class ImagePool {
 public:
  static Result<ImagePool*> make() {
    // Never freed: its threads end with the process only.
    auto pool = std::make_unique<ImagePool>();
    pool->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!pool->epoll_) return fail_errno(errno, "wait for requests of several images");
    return pool.release();
  }

  Result<void> add(std::shared_ptr<PooledImage> image) {
    const std::lock_guard lock(mutex_);
    epoll_event event = event_of(images_.size());
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, image->device(), &event) != 0)
      return fail_errno(errno, "wait for requests of an image");
    images_.push_back(std::move(image));
    ++served_;
    return {};
  }

  /// For the first image. One thread serves as well, only slower.
  Result<void> start_threads() {
    if (started_) return {};
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 2U, kMostThreadsForAll);
    for (unsigned i = 0; i < count; ++i) {
      try {
        std::thread([this] { serve(); }).detach();
        started_ = true;
      } catch (const std::system_error& error) {
        if (!started_) return fail_errno(error.code().value(), "start a thread");
        break;
      }
    }
    return {};
  }

  void wait_for_the_last() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return served_ == 0; });
  }

 private:
  static epoll_event event_of(size_t index) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLONESHOT;
    event.data.u64 = index;
    return event;
  }

  void serve() {
    while (true) {
      epoll_event event{};
      if (kernel::uninterrupted([&] { return epoll_wait(epoll_.get(), &event, 1, -1); }) == 1) turn(event.data.u64);
    }
  }

  void turn(size_t index) {
    const std::shared_ptr<PooledImage> image = find(index);
    if (!image) return;
    auto worker = image->worker();
    if (!worker) {
      // No memory now. Who asked waits a little longer.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return rearm(*image, index);
    }
    const auto taken = worker->take();
    if (!taken || *taken == Taken::gone) return let_go(index);
    rearm(*image, index);
    if (*taken == Taken::request) worker->answer();
    image->give_back(std::move(*worker));
  }

  std::shared_ptr<PooledImage> find(size_t index) {
    const std::lock_guard lock(mutex_);
    return images_[index];
  }

  void rearm(const PooledImage& image, size_t index) const {
    epoll_event event = event_of(index);
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, image.device(), &event);
  }

  void let_go(size_t index) {
    const std::lock_guard lock(mutex_);
    if (!images_[index]) return;
    images_[index].reset();
    --served_;
    changed_.notify_all();
  }

  UniqueFd epoll_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<PooledImage>> images_;  ///< empty: its mount is gone
  size_t served_ = 0;
  bool started_ = false;
};

}  // namespace

Result<void> serve_requests(const ImageAccess& image, int device, uid_t uid, gid_t gid) {
  TRY_ASSIGN(ImageAccess shared, image.another());
  const InodeRef root = shared.root();
  ServedImage served(std::move(shared), root, device, uid, gid);
  std::vector<ImageWorker> workers;
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 2U, kMostThreads);
  for (unsigned i = 0; i < count; ++i) {
    TRY_ASSIGN(ImageWorker worker, ImageWorker::of(served));
    workers.push_back(std::move(worker));
  }
  // One that is busy with a large block must not keep the others' questions waiting.
  std::vector<std::thread> threads;
  TRY_ASSIGN(ImageAccess ahead, image.another());
  try {
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([&worker = workers[i]] { (void)answer_all(worker); });
    threads.emplace_back([&ahead] { read_ahead(std::move(ahead)); });
  } catch (const std::system_error&) {
    // No more threads: those that there are serve as well, only slower.
  }
  Result<void> done = answer_all(workers[0]);
  for (std::thread& thread : threads) thread.join();
  return done;
}

std::string served_image_text(InodeRef root, uid_t uid, gid_t gid) {
  return std::to_string(root) + " " + std::to_string(uid) + " " + std::to_string(gid);
}

Result<void> serve_images(int socket) {
  TRY_ASSIGN(ImagePool* const pool, ImagePool::make());
  while (true) {
    auto packet = receive_packet(socket, kMostNumbers);
    if (!packet || !*packet) break;
    if ((*packet)->fds.size() != 2) continue;
    auto image = PooledImage::open((*packet)->bytes, std::move((*packet)->fds[0]), std::move((*packet)->fds[1]));
    if (!image) continue;
    TRY(pool->add(std::move(*image)));
    TRY(pool->start_threads());
  }
  pool->wait_for_the_last();
  return {};
}

}  // namespace situla
