// The only file that includes <linux/fuse.h>: the protocol's structures, no kernel call is made through it.
#include "hooks/mount/image_worker.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <linux/fuse.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/kernel.hpp"

namespace situla {
namespace {

constexpr uint32_t kMinor = 31;  ///< of the protocol as spoken here; the kernel adapts to it
// What came after 7.27, the protocol of Linux 4.18, whatever headers there are. A kernel offers what it knows.
constexpr uint32_t kMaxPagesFlag = uint32_t{1} << 22U, kCacheSymlinks = uint32_t{1} << 23U;  // 7.28
constexpr uint32_t kNoOpendir = uint32_t{1} << 24U;                                          // 7.29
constexpr uint32_t kCacheDirectory = uint32_t{1} << 3U;                                      // of fuse_open_out, 7.28
/// struct fuse_init_out of 7.28: max_pages lies in what was unused before.
struct InitAnswer {
  uint32_t major, minor, max_readahead, flags;
  uint16_t max_background, congestion_threshold;
  uint32_t max_write, time_gran;
  uint16_t max_pages, padding;
  std::array<uint32_t, 8> unused;
};
static_assert(sizeof(InitAnswer) == sizeof(fuse_init_out));
constexpr uint32_t kMaxWrite = 4096;
constexpr size_t kRequestBytes = 16384;
constexpr uint64_t kForever = uint64_t{1} << 30U;  ///< seconds
constexpr uint32_t kReadAhead = uint32_t{1} << 20U;
constexpr uint16_t kMaxPages = 256;
constexpr uint64_t kSpecialNames = 2;  ///< "." and ".." come first in every directory

/// Of a single image, what is on top is number 1 to the kernel, and 0 means that there is nothing.
constexpr uint64_t node_of(InodeRef ref, InodeRef top) {
  return ref == top ? FUSE_ROOT_ID : ref + 2;
}
constexpr InodeRef ref_of(uint64_t node, InodeRef top) {
  return node == FUSE_ROOT_ID ? top : node - 2;
}
/// Of several, the image's number is in the upper bits: a reference has 48.
constexpr unsigned kRefBits = 48;
constexpr uint64_t kMostImages = (uint64_t{1} << (64 - kRefBits)) - 1;

int errno_of(const Error& error) {
  return error.errnum() != 0 ? error.errnum() : EIO;
}

class Worker {
 public:
  Worker(ServedImages& images, int device) : images_(images), device_(device), buffer_(kRequestBytes) {}
  ~Worker() { let_go(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Result<void> run() {
    while (true) {
      const ssize_t size = read(device_, buffer_.data(), buffer_.size());
      // 0: of a socket in the place of the device, whose other end has closed.
      if (size == 0 || (size < 0 && errno == ENODEV)) return {};
      // ENOENT: the request was taken back before it was read.
      if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
      if (size < 0) return fail_errno(errno, "read requests for the image");
      if (static_cast<size_t>(size) < sizeof(fuse_in_header)) continue;
      handle(buffer_.data(), static_cast<size_t>(size));
    }
  }

 private:
  void handle(const char* bytes, size_t size) {
    std::memcpy(&request_, bytes, sizeof request_);
    body_ = {bytes + sizeof request_, size - sizeof request_};
    switch (request_.opcode) {
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;  // nothing is remembered, everything is answered soon; these have no answer
      case FUSE_INIT:
        return initialise();
      case FUSE_RELEASEDIR:
      case FUSE_DESTROY:
        return answer({});
      default:
        break;
    }
    if (!images_.whole() && request_.nodeid == FUSE_ROOT_ID) return handle_directory();
    if (const auto chosen = choose_image(); !chosen) return finish(chosen);
    handle_image();
  }

  /// The image of the request, which is most often that of the one before.
  Result<void> choose_image() {
    const uint64_t number = images_.whole() ? 0 : request_.nodeid >> kRefBits;
    if (!access_ || number != number_) {
      auto image = images_.whole() ? images_.whole() : images_.find(number);
      if (!image) return fail_errno(ESTALE, "find the image");
      TRY(use(number, std::move(image)));
    }
    ref_ = images_.whole() ? ref_of(request_.nodeid, image_->top().ref)
                           : request_.nodeid & ((uint64_t{1} << kRefBits) - 1);
    return {};
  }

  Result<void> use(uint64_t number, std::shared_ptr<ServedImage> image) {
    let_go();
    TRY_ASSIGN(access_, image->take());
    image_ = std::move(image);
    number_ = number;
    return {};
  }

  void let_go() {
    if (access_) image_->give_back(std::move(*access_));
    access_.reset();
    image_.reset();
  }

  /// In which the images are.
  void handle_directory() {
    switch (request_.opcode) {
      case FUSE_LOOKUP:
        return finish(look_up_image());
      case FUSE_GETATTR: {
        fuse_attr_out out{};
        out.attr_valid = kForever;
        out.attr.ino = FUSE_ROOT_ID;
        out.attr.mode = S_IFDIR | 0555;
        out.attr.nlink = 2;
        out.attr.uid = images_.owners().uid();
        out.attr.gid = images_.owners().gid();
        return answer_with(out);
      }
      case FUSE_OPENDIR:
        return answer_with(fuse_open_out{});  // asked for each time, and not kept: it changes
      case FUSE_READDIR:
        return list_images(false);
      case FUSE_READDIRPLUS:
        return list_images(true);
      case FUSE_STATFS:
        return answer_with(fuse_statfs_out{});
      default:
        return refuse(request_.opcode == FUSE_GETXATTR || request_.opcode == FUSE_LISTXATTR ? ENODATA : ENOSYS);
    }
  }

  Result<void> look_up_image() {
    const auto number = parse_unsigned(body_.substr(0, body_.find('\0')));
    auto image = number && *number > 0 && *number <= kMostImages ? images_.find(*number) : nullptr;
    if (!image) return fail_errno(ENOENT, "find the image");
    answer_with(entry(*number, *image));
    return {};
  }

  /// Nothing of the image is read for that: a container may mount hundreds.
  [[nodiscard]] fuse_entry_out entry(uint64_t number, const ServedImage& image) const {
    fuse_entry_out out{};
    out.nodeid = number << kRefBits | image.top().ref;
    out.entry_valid = out.attr_valid = kForever;
    out.attr = describe(image.top(), number, image.block_bytes());
    return out;
  }

  void list_images(bool with_attributes) {
    const auto in = body<fuse_read_in>();
    std::string out;
    uint64_t last = in.offset == 0 ? images_.listed.load() : in.offset;
    for (const uint64_t count = std::min<uint64_t>(images_.count(), kMostImages); last < count; ++last) {
      const auto image = images_.find(last + 1);
      if (!image) continue;
      const std::string name = std::to_string(last + 1);
      fuse_direntplus plus{};
      plus.entry_out = entry(last + 1, *image);
      plus.dirent.ino = plus.entry_out.attr.ino;
      plus.dirent.off = last + 1;
      plus.dirent.type = S_ISDIR(image->top().mode) ? type_of(1) : type_of(2);
      if (!append_entry(out, plus, name, with_attributes, in.size)) break;
    }
    images_.listed = last;
    answer({out});
  }

  void handle_image() {
    switch (request_.opcode) {
      case FUSE_LOOKUP:
        return finish(look_up());
      case FUSE_GETATTR:
        return finish(attributes());
      case FUSE_READLINK:
        return finish(read_link());
      case FUSE_READ:
        return finish(read_file());
      case FUSE_OPENDIR:
        return open_directory();
      case FUSE_READDIR:
        return finish(read_directory(false));
      case FUSE_READDIRPLUS:
        return finish(read_directory(true));
      case FUSE_STATFS:
        return statistics();
      case FUSE_GETXATTR:
        return finish(extended_attribute());
      case FUSE_LISTXATTR:
        return finish(extended_attributes());
      default:
        // To OPEN and the like it means: do not ask again.
        return refuse(ENOSYS);
    }
  }

  template <typename T>
  [[nodiscard]] T body() const {
    T value{};
    std::memcpy(&value, body_.data(), std::min(body_.size(), sizeof value));
    return value;
  }

  void answer(const std::vector<std::string_view>& parts) { write_answer(0, parts); }
  template <typename T>
  void answer_with(const T& value) {
    answer({{reinterpret_cast<const char*>(&value), sizeof value}});
  }
  void refuse(int errnum) { write_answer(-errnum, {}); }
  void finish(const Result<void>& done) {
    if (!done) refuse(errno_of(done.error()));
  }

  void write_answer(int error, const std::vector<std::string_view>& parts) {
    fuse_out_header header{sizeof header, error, request_.unique};
    std::vector<iovec> vectors{{&header, sizeof header}};
    for (const std::string_view part : parts) {
      vectors.push_back({const_cast<char*>(part.data()), part.size()});
      header.len += static_cast<uint32_t>(part.size());
    }
    // ENOENT: nobody waits for the answer any more. ENODEV: the next read says it.
    const auto written =
        kernel::uninterrupted([&] { return writev(device_, vectors.data(), static_cast<int>(vectors.size())); });
    // Who asked waits until he is told something.
    if (written < 0 && errno != ENOENT && errno != ENODEV && error == 0) refuse(EIO);
  }

  void initialise() {
    const auto in = body<fuse_init_in>();
    if (in.major != FUSE_KERNEL_VERSION) return refuse(EPROTO);
    // SPLICE and writing are of no use here. Zero-message opens save a question for every file that is opened.
    constexpr uint32_t kWanted = FUSE_ASYNC_READ | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS |
                                 FUSE_NO_OPEN_SUPPORT | kNoOpendir | kCacheSymlinks | kMaxPagesFlag;
    InitAnswer out{};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = std::min(in.minor, kMinor);
    out.max_readahead = std::min(in.max_readahead, kReadAhead);
    out.flags = in.flags & kWanted;
    images_.no_opendir = (out.flags & kNoOpendir) != 0;
    out.max_background = 32;
    out.congestion_threshold = 24;
    out.max_write = kMaxWrite;
    out.time_gran = 1;
    out.max_pages = kMaxPages;
    answer_with(out);
  }

  /// Two images have the same numbers, and programs take equal ones for hard links.
  [[nodiscard]] uint64_t ino_of(uint32_t number) const { return number_ << 32U | number; }

  [[nodiscard]] fuse_attr describe(const StoredInode& inode) const {
    return describe(inode, number_, access_->info().block_size);
  }
  [[nodiscard]] fuse_attr describe(const StoredInode& inode, uint64_t image, uint32_t block_bytes) const {
    fuse_attr attr{};
    attr.ino = image << 32U | inode.number;
    attr.size = S_ISREG(inode.mode) || S_ISLNK(inode.mode) ? inode.size : 0;
    if (S_ISDIR(inode.mode)) attr.size = inode.size;
    attr.blocks = (attr.size + 511) / 512;
    attr.atime = attr.mtime = attr.ctime = inode.modification_time;
    attr.mode = inode.mode;
    attr.nlink = inode.links;
    attr.uid = images_.owners().uid_of(inode);
    attr.gid = images_.owners().gid_of(inode);
    attr.rdev = inode.device;
    attr.blksize = block_bytes;
    return attr;
  }

  Result<fuse_entry_out> entry(InodeRef ref) {
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref));
    fuse_entry_out out{};
    out.nodeid = images_.whole() ? node_of(ref, image_->top().ref) : number_ << kRefBits | ref;
    out.entry_valid = out.attr_valid = kForever;
    out.attr = describe(inode);
    return out;
  }

  Result<std::shared_ptr<const Listing>> listing() {
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    if (!S_ISDIR(inode.mode)) return fail_errno(ENOTDIR, "list");
    return access_->list(inode);
  }

  Result<void> look_up() {
    const std::string_view name = body_.substr(0, body_.find('\0'));
    TRY_ASSIGN(const std::shared_ptr<const Listing> names, listing());
    const StoredName* found = find_name(*names, name);
    fuse_entry_out out{};
    out.entry_valid = kForever;  // of what is not there: it never will be
    if (found != nullptr) {
      TRY_ASSIGN(out, entry(found->inode));
    }
    answer_with(out);
    return {};
  }

  Result<void> attributes() {
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    fuse_attr_out out{};
    out.attr_valid = kForever;
    out.attr = describe(inode);
    answer_with(out);
    return {};
  }

  Result<void> read_link() {
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    if (!S_ISLNK(inode.mode)) return fail_errno(EINVAL, "read a link");
    TRY_ASSIGN(const std::string target, access_->link_target(inode));
    answer({target});
    return {};
  }

  Result<void> read_file() {
    const auto in = body<fuse_read_in>();
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    if (!S_ISREG(inode.mode)) return fail_errno(EISDIR, "read");
    const size_t most = std::min<size_t>(in.size, size_t{kMaxPages} * 4096);
    TRY_ASSIGN(const std::vector<Extent> extents, access_->read(inode, in.offset, most));
    std::vector<std::string_view> parts;
    parts.reserve(extents.size());
    for (const uint32_t block = access_->info().block_size; const Extent& extent : extents) {
      // For the largest at once: what grows between two parts would free what the first one shows.
      if (extent.bytes == nullptr && zeros_.size() < block) zeros_.assign(block, '\0');
      parts.emplace_back(extent.bytes != nullptr ? extent.bytes : zeros_.data(), extent.size);
    }
    answer(parts);
    return {};
  }

  /// Kernels without zero-message opendir (before 5.1) would take ENOSYS for an error.
  void open_directory() {
    if (images_.no_opendir) return refuse(ENOSYS);
    fuse_open_out out{};
    out.open_flags = FOPEN_KEEP_CACHE | kCacheDirectory;
    answer_with(out);
  }

  /// False: there is no room left for it.
  static bool append_entry(std::string& out, fuse_direntplus& plus, std::string_view name, bool with_attributes,
                           size_t most) {
    const size_t size = with_attributes ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
    if (out.size() + size + name.size() + 7 > most) return false;
    plus.dirent.namelen = static_cast<uint32_t>(name.size());
    const void* const fields = with_attributes ? static_cast<const void*>(&plus) : &plus.dirent;
    out.append(static_cast<const char*>(fields), size);
    out += name;
    out.resize((out.size() + 7) / 8 * 8);
    return true;
  }

  static uint32_t type_of(uint16_t type) {
    constexpr std::array<uint32_t, 8> kTypes = {0, 4, 8, 10, 6, 2, 1, 12};  // DT_DIR, DT_REG, ... of readdir(3)
    return type < kTypes.size() ? kTypes[type] : 0;
  }

  Result<void> read_directory(bool with_attributes) {
    const auto in = body<fuse_read_in>();
    TRY_ASSIGN(const std::shared_ptr<const Listing> names, listing());
    std::string out;
    for (uint64_t at = in.offset; at < names->size() + kSpecialNames; ++at) {
      const bool special = at < kSpecialNames;
      const std::string_view name =
          special ? std::string_view("..").substr(0, at + 1) : (*names)[at - kSpecialNames].name;
      fuse_direntplus plus{};
      if (special) {
        // The kernel knows these two; a number of zero would hide them.
        plus.dirent.ino = 1;
        plus.dirent.type = type_of(1);
      } else {
        const StoredName& stored = (*names)[at - kSpecialNames];
        if (with_attributes) {
          TRY_ASSIGN(plus.entry_out, entry(stored.inode));
        }
        plus.dirent.ino = ino_of(stored.number);
        plus.dirent.type = type_of(stored.type);
      }
      plus.dirent.off = at + 1;
      if (!append_entry(out, plus, name, with_attributes, in.size)) break;
    }
    answer({out});
    return {};
  }

  void statistics() {
    fuse_statfs_out out{};
    out.st.bsize = out.st.frsize = access_->info().block_size;
    out.st.blocks = (access_->info().bytes_used + out.st.bsize - 1) / out.st.bsize;
    out.st.files = access_->info().inodes;
    out.st.namelen = 255;
    answer_with(out);
  }

  /// A size of 0 asks how large the answer is.
  void answer_sized(uint32_t room, std::string_view value) {
    if (room == 0) {
      fuse_getxattr_out out{};
      out.size = static_cast<uint32_t>(value.size());
      return answer_with(out);
    }
    if (value.size() > room) return refuse(ERANGE);
    answer({value});
  }

  Result<void> extended_attribute() {
    // Not only this file: overlayfs asks for every directory, and need not.
    if (!access_->has_attributes()) return fail_errno(images_.whole() ? ENOSYS : ENODATA, "attribute");
    const auto in = body<fuse_getxattr_in>();
    const std::string_view name = body_.substr(std::min(body_.size(), sizeof in));
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    TRY_ASSIGN(const auto all, access_->attributes(inode));
    for (const auto& [key, value] : all) {
      if (key != name.substr(0, name.find('\0'))) continue;
      answer_sized(in.size, value);
      return {};
    }
    return fail_errno(ENODATA, "attribute");
  }

  Result<void> extended_attributes() {
    if (!access_->has_attributes() && images_.whole()) return fail_errno(ENOSYS, "attributes");
    TRY_ASSIGN(const StoredInode inode, access_->inode(ref_));
    TRY_ASSIGN(const auto all, access_->attributes(inode));
    std::string names;
    for (const auto& [key, value] : all) names += key + '\0';
    answer_sized(body<fuse_getxattr_in>().size, names);
    return {};
  }

  ServedImages& images_;
  const int device_;
  std::vector<char> buffer_;
  fuse_in_header request_{};
  std::string_view body_;
  uint64_t number_ = 0;  ///< of image_, with access_
  std::shared_ptr<ServedImage> image_;
  std::optional<ImageAccess> access_;
  InodeRef ref_ = 0;
  std::string zeros_;
};

}  // namespace

Result<ImageAccess> ServedImage::take() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return image_.another();
  ImageAccess access = std::move(idle_.back());
  idle_.pop_back();
  return access;
}

void ServedImage::give_back(ImageAccess access) {
  constexpr size_t kMostIdle = 2;
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(access));
}

void ServedImages::add(std::shared_ptr<ServedImage> image) {
  const std::lock_guard lock(mutex_);
  images_.push_back(std::move(image));
}

size_t ServedImages::count() const {
  const std::lock_guard lock(mutex_);
  return images_.size();
}

std::shared_ptr<ServedImage> ServedImages::find(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number > 0 && number <= images_.size() ? images_[number - 1] : nullptr;
}

Result<void> answer_requests(ServedImages& images, int device) {
  return Worker(images, device).run();
}

}  // namespace situla
