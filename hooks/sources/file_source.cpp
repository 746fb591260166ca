#include "hooks/sources/file_source.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "hooks/registry/sha256.hpp"

namespace situla {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20U;

/// Reads one file after the other. Files are opened when their turn comes: a layout has more of them than a process may
/// hold open.
class FileStream {
 public:
  FileStream(ImageFiles& files, std::vector<Blob> blobs, std::vector<std::string> names)
      : files_(files), blobs_(std::move(blobs)), names_(std::move(names)), buffer_(new char[kChunkBytes]) {}

  Result<std::string_view> read(size_t blob) {
    if (stopped_) return fail(ErrorKind::cancelled, "stopped");
    if (blob != current_) {
      TRY_ASSIGN(range_, files_.open(names_[blob]));
      posix_fadvise(range_.fd->get(), static_cast<off_t>(range_.offset), static_cast<off_t>(range_.size),
                    POSIX_FADV_SEQUENTIAL);
      current_ = blob;
      done_ = 0;
    }
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(range_.size - done_, kChunkBytes));
    if (wanted == 0) return std::string_view();
    ssize_t count = 0;
    do {
      count = pread(range_.fd->get(), buffer_.get(), wanted, static_cast<off_t>(range_.offset + done_));
    } while (count < 0 && errno == EINTR);
    if (count < 0) return fail_errno(errno, blobs_[blob].name + ": read");
    if (count == 0)
      return fail(Error(ErrorKind::corrupt, blobs_[blob].name + ": the file became shorter while it was read")
                      .with_code(ErrorCode::image_damaged));
    done_ += static_cast<uint64_t>(count);
    return std::string_view(buffer_.get(), static_cast<size_t>(count));
  }

  void stop() { stopped_ = true; }

 private:
  ImageFiles& files_;
  const std::vector<Blob> blobs_;
  const std::vector<std::string> names_;
  std::unique_ptr<char[]> buffer_;
  std::atomic<bool> stopped_{false};
  size_t current_ = SIZE_MAX;
  FileRange range_;
  uint64_t done_ = 0;
};

}  // namespace

Result<FileRange> FileSource::open_blob(const std::string& file, uint64_t size, const std::string& what) {
  auto range = files_->open(file);
  if (!range)
    return fail(std::move(range)
                    .error()
                    .with_context(what)
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the image is incomplete: copy or save it again, with all layers"));
  if (range->size != size)
    return fail(Error(ErrorKind::corrupt, what + ": its file has " + std::to_string(range->size) +
                                              " bytes instead of " + std::to_string(size))
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the file is damaged or still being written: copy or save the image again"));
  return range;
}

Result<std::string> FileSource::read_blob(const Descriptor& descriptor, const std::string& file, uint64_t limit,
                                          const char* key, const std::string& what) {
  TRY_ASSIGN(const FileRange range, open_blob(file, descriptor.size, what));
  TRY_ASSIGN(std::string bytes, read_range(range, limit, key, what));
  if (const Digest actual = digest_of(bytes); actual != descriptor.digest)
    return fail(Error(ErrorKind::corrupt, what + ": its content has the digest " + actual.text() + " instead of " +
                                              descriptor.digest.text())
                    .with_code(ErrorCode::image_damaged)
                    .with_hint("the file is damaged: copy or save the image again"));
  return bytes;
}

Result<std::string> FileSource::read_manifest(const Descriptor& descriptor, const std::string& file) {
  return read_blob(descriptor, file, budget().manifest_size, "manifest_size", "manifest " + descriptor.digest.text());
}

Result<std::string> FileSource::read_manifest(const FileRange& range, const std::string& what) const {
  return read_range(range, budget().manifest_size, "manifest_size", what);
}

Result<std::string> FileSource::fetch_config(const Descriptor& config) {
  return read_blob(config, file_of(config.digest), budget().config_size, "config_size",
                   "configuration " + config.digest.text());
}

Result<BlobStream> FileSource::open_blobs(const std::vector<Blob>& blobs) {
  std::vector<std::string> names;
  for (const Blob& blob : blobs) {
    names.push_back(file_of(blob.digest));
    TRY(open_blob(names.back(), blob.size, blob.name));
  }
  auto stream = std::make_shared<FileStream>(*files_, blobs, std::move(names));
  return BlobStream{[stream](size_t blob) { return stream->read(blob); }, [stream] { stream->stop(); }};
}

}  // namespace situla
