#include "hooks/unpack/extract_files.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// Files open at a time: far below the usual limit of 1024 descriptors, with room for a deep path.
constexpr size_t kMaxWaiting = 256;
constexpr size_t kMaxThreads = 16;
// A batch is what one thread does in one go. Small files that share a compressed fragment belong together, or every
// thread would decompress it.
constexpr size_t kBatchFiles = 64;
constexpr uint64_t kBatchBytes = uint64_t{1} << 20U;
constexpr uint64_t kPartBytes = uint64_t{8} << 20U;
constexpr int kMaxYields = 100000;
constexpr size_t kMaxParts = 256;  // of one file, which may claim any size

Result<void> write_at(int fd, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return {};
}

/// Of the affinity mask, which is how Slurm limits a job to its processors.
size_t processors() {
  return std::max(std::thread::hardware_concurrency(), 1U);
}

/// Of this process: /proc/self/task has one link for each, and two more.
size_t thread_count() {
  struct stat status {};
  return stat("/proc/self/task", &status) == 0 ? status.st_nlink : 0;
}

}  // namespace

void ExtractNotes::add(const std::string& what, const std::string& path) {
  if (log_ == nullptr) return;
  const std::lock_guard guard(mutex_);
  if (said_.insert(what).second) log_->info(what + ", for example " + printable(path));
}

Result<void> extract_attributes(ImageAccess& image, int fd, const std::string& path, const StoredInode& node,
                                ExtractNotes& notes) {
  TRY_ASSIGN(const auto all, image.attributes(node));
  for (const auto& [key, value] : all) {
    const bool wanted = key.starts_with("user.") || key == "security.capability";
    if (wanted && fsetxattr(fd, key.c_str(), value.data(), value.size(), 0) == 0) continue;
    const int errnum = wanted ? errno : EPERM;
    if (errnum == ENOSPC || errnum == EDQUOT) return fail_errno(errnum, "set attribute " + printable(key));
    notes.add("attributes like " + printable(key) + " cannot be kept here (" +
                  Error::from_errno(errnum, "set").message() + ")",
              path);
  }
  return {};
}

Result<void> give_away(int fd, const StoredInode& node, const FinishRules& rules) {
  if (rules.owners == nullptr || fchown(fd, rules.owners->uid_of(node), rules.owners->gid_of(node)) == 0) return {};
  return fail_errno(errno, "set owner");
}

Result<void> finish_extracted(int fd, const StoredInode& node, const FinishRules& rules) {
  if (fchmod(fd, node.mode & (rules.keep_set_id ? 07777U : 01777U)) != 0) return fail_errno(errno, "set mode");
  const timespec time{static_cast<time_t>(node.modification_time), 0};
  const timespec times[2] = {time, time};
  if (futimens(fd, times) != 0) return fail_errno(errno, "set time");
  return {};
}

FileWriters::FileWriters(ImageAccess& image, size_t threads, const FinishRules& rules, ExtractNotes& notes)
    : image_(image), rules_(rules), notes_(notes) {
  threads_before_ = thread_count();
  const size_t wanted = std::min(threads != 0 ? threads : processors(), kMaxThreads);
  if (wanted < 2) return;
  try {
    while (threads_.size() < wanted) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // The limit of processes is reached: fewer, or none, do it as well.
  }
}

FileWriters::~FileWriters() {
  stop(true);
}

Result<void> FileWriters::add(UniqueFd fd, std::string path, const StoredInode& node) {
  if (batch_is_full(node)) TRY(hand_over());
  auto file = std::make_shared<File>();
  file->fd = std::move(fd);
  file->path = std::move(path);
  file->node = node;
  ++batch_files_;
  batch_bytes_ += file->node.size;
  split(file);
  return {};
}

Result<void> FileWriters::finish() {
  TRY(hand_over());
  stop(false);
  return error();
}

bool FileWriters::batch_is_full(const StoredInode& next) const {
  if (batch_.empty()) return false;
  const bool large = batch_files_ >= kBatchFiles || batch_bytes_ >= kBatchBytes;
  // However many share a fragment: each of them holds a descriptor.
  return batch_files_ >= 2 * kBatchFiles || (large && next.fragment != batch_.back().file->node.fragment) ||
         batch_bytes_ >= kPartBytes || next.size >= kPartBytes;
}

/// Large files are shared by all threads. An empty one is one part, too.
void FileWriters::split(const std::shared_ptr<File>& file) {
  const uint64_t size = file->node.size;
  const uint64_t step = std::max(kPartBytes, (size / kMaxParts / kPartBytes + 1) * kPartBytes);
  file->parts_left = std::max<size_t>(size / step + (size % step != 0 ? 1 : 0), 1);
  uint64_t begin = 0;
  do {
    const uint64_t end = begin + std::min(step, size - begin);
    batch_.push_back({file, begin, end});
    begin = end;
  } while (begin < size);
}

Result<void> FileWriters::hand_over() {
  Batch batch = std::exchange(batch_, {});
  const size_t files = std::exchange(batch_files_, 0);
  batch_bytes_ = 0;
  if (threads_.empty()) return write_batch(image_, batch);
  {
    std::unique_lock guard(mutex_);
    less_.wait(guard, [&] { return error_ || files_open_ == 0 || files_open_ + files <= kMaxWaiting; });
    if (error_) return fail(*error_);
    files_open_ += files;
    // The parts of a large file are a batch each.
    if (files == 1) {
      for (Part& part : batch) waiting_.push_back({std::move(part)});
    } else {
      waiting_.push_back(std::move(batch));
    }
  }
  more_.notify_all();
  return {};
}

void FileWriters::work() {
  auto image = image_.another();
  if (!image) return fail_with(image.error());
  for (;;) {
    Batch batch;
    {
      std::unique_lock guard(mutex_);
      more_.wait(guard, [&] { return ending_ || error_ || !waiting_.empty(); });
      if (error_ || waiting_.empty()) return;
      batch = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (auto done = write_batch(*image, batch); !done) return fail_with(std::move(done).error());
  }
}

Result<void> FileWriters::write_batch(ImageAccess& image, const Batch& batch) {
  for (const Part& part : batch) {
    auto done = write_part(image, part);
    if (!done) return fail(std::move(done).error().with_context("extract " + printable(part.file->path)));
  }
  return {};
}

Result<void> FileWriters::write_part(ImageAccess& image, const Part& part) {
  File& file = *part.file;
  TRY(image.read(file.node, part.begin, part.end, [&file](uint64_t offset, std::string_view bytes) -> Result<void> {
    const uint64_t end = offset + bytes.size();
    for (uint64_t known = file.end; known < end && !file.end.compare_exchange_weak(known, end);) continue;
    return write_at(file.fd.get(), offset, bytes);
  }));
  if (--file.parts_left > 0) return {};
  // A hole at the end, or nothing but holes. A size beyond what a file can have is EFBIG or EINVAL here.
  if (file.end != file.node.size && ftruncate(file.fd.get(), static_cast<off_t>(file.node.size)) != 0)
    return fail_errno(errno, "set size");
  TRY(give_away(file.fd.get(), file.node, rules_));
  TRY(extract_attributes(image, file.fd.get(), file.path, file.node, notes_));
  TRY(finish_extracted(file.fd.get(), file.node, rules_));
  file.fd.reset();
  if (threads_.empty()) return {};
  {
    const std::lock_guard guard(mutex_);
    --files_open_;
  }
  less_.notify_one();
  return {};
}

void FileWriters::fail_with(Error error) {
  {
    const std::lock_guard guard(mutex_);
    if (!error_) error_ = std::move(error);
  }
  more_.notify_all();
  less_.notify_all();
}

Result<void> FileWriters::error() {
  const std::lock_guard guard(mutex_);
  if (error_) return fail(*error_);
  return {};
}

void FileWriters::stop(bool at_once) {
  if (threads_.empty()) return;
  {
    const std::lock_guard guard(mutex_);
    ending_ = true;
    if (at_once) waiting_.clear();
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  // join() returns a moment before the kernel has forgotten the thread, and a process with two threads may make no user
  // namespace.
  for (int i = 0; i < kMaxYields && thread_count() > threads_before_; ++i) std::this_thread::yield();
}

}  // namespace situla
