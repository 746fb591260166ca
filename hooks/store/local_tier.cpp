#include "hooks/store/local_tier.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/file_systems.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/store/room.hpp"

namespace situla {
namespace {

constexpr size_t kPiece = size_t{1} << 20U;         // it gives way between two
constexpr uint64_t kStretch = uint64_t{16} << 20U;  // no more waits for the disk at a time
constexpr std::chrono::milliseconds kLook{500};     // whether another one still copies
constexpr mode_t kPartMode = 0600, kCopyMode = 0400;
constexpr std::string_view kPartEnding = ".part";

std::optional<struct stat> status_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? std::optional(status) : std::nullopt;
}

/// Of a copy the name of its image; of another file in the directory, which an earlier store of the node's own left,
/// nothing.
std::optional<std::string> image_of(const std::string& copy) {
  const size_t dot = copy.rfind('.');
  // An image's own name ends with its origin, a user or a variant.
  if (dot == std::string::npos || !Digest::parse_hex(copy.substr(dot + 1))) return std::nullopt;
  return copy.substr(0, dot);
}

/// Those of copies that did not come to their end, but this one.
void remove_parts(const std::string& directory, const std::string& kept) {
  for (const std::string& name : list_directory(directory).value_or(std::vector<std::string>()))
    if (name.ends_with(kPartEnding) && name != kept) unlink((directory + "/" + name).c_str());
}

/// One that was there goes on; what cannot, one that was about to get its name, goes.
Result<UniqueFd> open_part(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW;
  if (auto file = open_file(path, kFlags, kPartMode)) return file;
  unlink(path.c_str());
  return open_file(path, kFlags | O_EXCL, kPartMode);
}

/// Of a part, at most so many bytes; what follows is to be written behind them. Returns how many there are.
Result<uint64_t> keep(int part, uint64_t most) {
  const auto status = status_of(part);
  if (!status) return fail_errno(errno, "look at the copy");
  const uint64_t there = std::min(most, static_cast<uint64_t>(status->st_size));
  if (ftruncate(part, static_cast<off_t>(there)) != 0 || lseek(part, static_cast<off_t>(there), SEEK_SET) < 0)
    return fail_errno(errno, "shorten the copy");
  return there;
}

}  // namespace

std::optional<LocalTier> LocalTier::open(const SiteConfig& config, const std::string& store, LogSink& log) {
  const std::string& directory = config.local_tier;
  if (directory.empty()) return std::nullopt;
  const auto without = [&](const std::string& why) {
    log.debug("no copies in " + directory + ": " + why);
    return std::nullopt;
  };
  if (share_file_system(directory, store)) return without("it is on the file system of the store");
  if (mounted_from(directory).kind == FileSystemKind::network) return without("it is on no disk of this node");
  auto shared = ImageStore::open(store);
  if (!shared) return without(shared.error().message());
  auto local = ImageStore::open(directory);
  if (!local) return without(local.error().message());
  return LocalTier(std::move(*shared), std::move(*local), config.local_tier_max);
}

std::optional<UniqueFd> LocalTier::find(const std::string& name, int image) const {
  const auto content = store_.content(name);
  const std::string copy = content ? name + "." + content->hex() : "";
  auto file = local_.find_named(copy);
  if (!file) return std::nullopt;
  const auto theirs = status_of(image), ours = status_of(file->get());
  if (!theirs || !ours || theirs->st_size != ours->st_size || ours->st_nlink != 1) return std::nullopt;
  local_.touch(copy);
  return file;
}

Result<void> LocalTier::fill(const std::string& name, const std::function<bool()>& go_on) const {
  TRY_ASSIGN(const auto alone, wait_for_others(go_on));
  const auto image = alone ? store_.find_named(name) : std::nullopt;
  const auto status = image ? status_of(image->get()) : std::nullopt;
  if (!status || find(name, image->get())) return {};
  const auto bytes = static_cast<uint64_t>(status->st_size);
  const std::string parts = local_.directory() + "/images", part = name + std::string(kPartEnding);
  const std::string path = parts + "/" + part;
  sweep(name);
  remove_parts(parts, part);
  TRY_ASSIGN(UniqueFd file, open_part(path));
  ScopeExit remove([&] { unlink(path.c_str()); });
  const bool goes_on = store_.content(name).has_value();  // else nothing would tell whether what is there is right
  TRY_ASSIGN(const uint64_t there, keep(file.get(), goes_on ? bytes : 0));
  TRY(make_room(bytes, there));
  TRY_ASSIGN(const auto content, copy({image->get(), file.get(), bytes, there}, go_on));
  if (!content) {
    remove.dismiss();
    return {};
  }
  TRY(check(name, image->get(), *content));
  if (fchmod(file.get(), kCopyMode) != 0) return fail_errno(errno, "set the mode of " + path);
  if (fsync(file.get()) != 0) return fail_errno(errno, "sync " + path);
  file.reset();  // nobody can write to what has its name
  const std::string copy_path = local_.images() + "/" + name + "." + content->hex();
  // For who looks at the directory, and as the time of the last use.
  const auto record = read_file(store_.images() + "/" + name + ".json");
  TRY(write_file_atomically(copy_path + ".json", record.value_or("{}"), kPartMode, Sync::no));
  if (rename(path.c_str(), (copy_path + std::string(kImageEnding)).c_str()) != 0)
    return fail_errno(errno, "name the copy " + copy_path);
  remove.dismiss();
  return {};
}

/// None: go_on said no.
Result<std::optional<FileLock>> LocalTier::wait_for_others(const std::function<bool()>& go_on) const {
  for (; go_on(); std::this_thread::sleep_for(kLook)) {
    TRY_ASSIGN(UniqueFd directory, open_file(local_.images(), O_RDONLY | O_DIRECTORY));
    auto lock = FileLock::acquire(std::move(directory), FileLock::Kind::exclusive, {}, local_.images());
    if (lock) return std::optional(std::move(*lock));
    if (lock.error().errnum() != EWOULDBLOCK) return fail(std::move(lock).error());
  }
  return std::nullopt;
}

/// Whether the store's file holds that: it says so, or, as nobody has read that file whole before, is told now.
Result<void> LocalTier::check(const std::string& name, int image, const Digest& content) const {
  if (const auto known = store_.content(name))
    return *known == content ? Result<void>() : fail(ErrorKind::corrupt, "the copy has another SHA-256");
  const auto named = store_.find_named(name);
  const auto now = named ? status_of(named->get()) : std::nullopt, read = status_of(image);
  if (!now || !read || now->st_ino != read->st_ino || now->st_dev != read->st_dev)
    return fail(ErrorKind::not_found, "the image has gone meanwhile");
  return store_.note_content(name, content);
}

bool LocalTier::holds(int image) const {
  struct stat status {};
  const auto file = status_of(image);
  return file && stat(local_.images().c_str(), &status) == 0 && file->st_dev == status.st_dev;
}

/// Copies of what the store has no more; and those of this image, of which there is none that it would be given for.
void LocalTier::sweep(const std::string& name) const {
  const auto names = list_directory(store_.images()).value_or(std::vector<std::string>());
  const std::set<std::string> stored(names.begin(), names.end());
  // Without that one it is no list of the store.
  if (!stored.contains(name + std::string(kImageEnding))) return;
  for (const StoredImage& copy : local_.list()) {
    const auto image = image_of(copy.name);
    if (image && (*image == name || !stored.contains(*image + std::string(kImageEnding))))
      (void)local_.remove_unused(copy.name);
  }
  local_.sweep(std::time(nullptr));
}

/// For a copy of so many bytes, of which some are there. Nothing goes for one that has no room anyway.
Result<void> LocalTier::make_room(uint64_t bytes, uint64_t there) const {
  TRY_ASSIGN(const Disk disk, disk_of(local_.directory()));
  const auto images = local_.list();
  std::vector<const StoredImage*> unused;
  uint64_t taken = 0, free_able = 0;
  for (const StoredImage& image : images) {
    taken += image.bytes;
    if (image.pinned || local_.is_in_use(image.name).value_or(true)) continue;
    unused.push_back(&image);
    free_able += image.bytes;
  }
  const uint64_t of_disk = taken + there + disk.free, limit = most_.of(disk.total);
  uint64_t most = disk.total == 0 ? UINT64_MAX : of_disk - std::min(of_disk, disk.reserve());
  if (limit > 0) most = std::min(most, limit);
  const bool fits = taken - free_able + bytes <= most;
  uint64_t gone = 0;
  for (const StoredImage* image : unused) {
    if (!fits || taken - gone + bytes <= most) break;
    if (local_.remove_unused(image->name)) gone += image->bytes;
  }
  taken -= gone;
  if (gone > 0) (void)disk_with_free(local_.directory(), disk.free + gone);
  if (taken + bytes <= most) return {};
  return fail(ErrorKind::no_space, "copies of images take " + format_size(taken + bytes) + " with this one, and may " +
                                       "take " + format_size(most));
}

/// What is there already is read, too. Returns the SHA-256 of the whole; none: go_on said no.
Result<std::optional<Digest>> LocalTier::copy(const Copying& what, const std::function<bool()>& go_on) const {
  const auto buffer = std::make_unique<char[]>(kPiece);
  Sha256 hash;
  uint64_t stretch = what.there;
  auto began = std::chrono::steady_clock::now();
  for (uint64_t at = 0; at < what.bytes;) {
    if (!go_on()) return std::nullopt;
    const bool is_there = at < what.there;
    const size_t wanted = std::min<uint64_t>(kPiece, (is_there ? what.there : what.bytes) - at);
    const ssize_t count = pread(is_there ? what.to : what.from, buffer.get(), wanted, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read the image");
    if (count == 0) return fail(ErrorKind::corrupt, "the image ends too early");
    const std::string_view piece(buffer.get(), static_cast<size_t>(count));
    hash.update(piece);
    if (!is_there) TRY(write_all(what.to, piece));
    at += piece.size();
    if (at < stretch + kStretch) continue;
    TRY(write_out(what.to, stretch, at));
    // Half of the time is the step's own, on a slow file system, too.
    std::this_thread::sleep_for(std::chrono::steady_clock::now() - began);
    stretch = at;
    began = std::chrono::steady_clock::now();
  }
  return hash.finish();
}

/// Others who write to that disk wait for a stretch, and not for an image; and it is there for who goes on.
Result<void> LocalTier::write_out(int file, uint64_t from, uint64_t to) const {
  (void)sync_file_range(file, static_cast<off_t>(from), static_cast<off_t>(to - from),
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  TRY_ASSIGN(const Disk disk, disk_of(local_.directory()));
  return disk.free >= disk.reserve() ? Result<void>() : fail(ErrorKind::no_space, "the disk is full");
}

}  // namespace situla
