#include "hooks/store/image_store.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/codec.hpp"
#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/file_systems.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/store/counts.hpp"

namespace situla {
namespace {

constexpr unsigned kImageMode = 0400;
constexpr mode_t kRecordMode = 0600;
constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kOthers = 077;
constexpr uint64_t kRecordVersion = 2;
constexpr size_t kMaxRecordBytes = size_t{1} << 20U;
constexpr const char* kPinEnding = ".pin";
constexpr const char* kContentEnding = ".sha256";
constexpr int64_t kForgotten = 3600;  // seconds; an image gets its name right after its record
constexpr size_t kDigestDigits = 64, kOriginDigits = 32;
constexpr int kMostTries = 100;                       // a millisecond apart
constexpr std::chrono::milliseconds kVisible{10000};  // what a file system of several nodes remembers of a name
constexpr std::chrono::seconds kWriterLimit{2};

constexpr const char* kHint =
    "a node's store: see store_path in /etc/situla/situla.toml, and 'situla doctor'; your own: see ENROOT_CACHE_PATH";

std::string to_text(const ImageKey& key, const StoreRecord& record, uint64_t image_bytes) {
  Json json = Json::object({{"version", kRecordVersion},
                            {"digest", key.digest.text()},
                            {"variant", key.variant},
                            {"source", record.source},
                            {"name", record.name},
                            {"tag", record.tag},
                            {"architecture", record.architecture},
                            {"image_bytes", image_bytes},
                            {"fetched_bytes", record.fetched_bytes},
                            {"imported", record.imported}});
  if (record.uid) json.add("uid", *record.uid);
  if (key.only) json.add("only", *key.only);
  return to_text(json, {.ascii = true});
}

StoreRecord read_record(const std::string& path) {
  StoreRecord record;
  const auto text = read_file(path, kMaxRecordBytes);
  const auto json = parse_json(text.value_or(""));
  const Json* version = json ? json->find("version") : nullptr;
  if (version == nullptr || version->as_number() != kRecordVersion) return record;
  const auto number = [&](const char* name) {
    const Json* member = json->find(name);
    return member != nullptr ? member->as_number() : std::nullopt;
  };
  record.source = json->text("source");
  record.name = json->text("name");
  record.tag = json->text("tag");
  record.architecture = json->text("architecture");
  record.fetched_bytes = number("fetched_bytes").value_or(0);
  record.imported = static_cast<int64_t>(number("imported").value_or(0));
  if (const auto uid = number("uid")) record.uid = static_cast<uid_t>(*uid);
  return record;
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_name(std::string_view name) {
  return name.size() >= kDigestDigits + 1 + kOriginDigits && name.size() < 200 && name[kDigestDigits] == '.' &&
         is_hex(name.substr(0, kDigestDigits)) && is_hex(name.substr(kDigestDigits + 1, kOriginDigits)) &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string_view::npos;
}

/// Of this process's user, and closed to everybody else. True: it was open before.
Result<bool> close_directory(const std::string& path) {
  TRY_ASSIGN(const UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY));
  struct stat status {};
  if (fstat(directory.get(), &status) != 0) return fail_errno(errno, "stat " + path);
  if (status.st_uid != geteuid())
    return fail(Error(ErrorKind::denied,
                      path + " belongs to uid " + std::to_string(status.st_uid) + ", not to the service user")
                    .with_code(ErrorCode::installation)
                    .with_hint("as root: chown -R " + std::to_string(geteuid()) + " " + shell_quote(path) +
                               "; or another store_path in situla.toml"));
  if ((status.st_mode & kOthers) == 0) return false;
  if (fchmod(directory.get(), kDirectoryMode) != 0) return fail_errno(errno, "set the mode of " + path);
  return true;
}

/// What a release wrote that let everybody read its store.
Result<void> remove_old_files(const std::string& directory) {
  const std::string images = directory + "/images/sha256";
  TRY_ASSIGN(const auto names, list_directory(images));
  for (const std::string& name : names)
    if (!is_name(name)) TRY(remove_tree(images + "/" + name));
  return remove_tree(directory + "/layers");
}

Result<void> prepare(const std::string& directory) {
  TRY(make_directories(directory, kDirectoryMode));
  TRY(close_directory(directory));
  const std::string images = directory + "/images/sha256";
  TRY(make_directories(images, kDirectoryMode));
  struct stat status {};
  // Its mode tells that the old files are gone: it is set last.
  if (stat(images.c_str(), &status) == 0 && (status.st_mode & kOthers) != 0) TRY(remove_old_files(directory));
  for (const char* name : {"/images", "/images/sha256"}) TRY(close_directory(directory + name));
  for (const char* name : {"/leases", "/layers", "/slots"}) TRY(make_directories(directory + name, kDirectoryMode));
  return {};
}

}  // namespace

std::string origin_key(const Origin& origin) {
  Encoder out;  // with lengths: no two origins run together into one text
  out.text("situla origin 1");
  out.text(origin.registry);
  out.text(origin.repository);
  return digest_of(out.take()).hex().substr(0, kOriginDigits);
}

std::string ImageKey::name() const {
  std::string name = digest.hex() + "." + origin;
  if (only) name += ".u" + std::to_string(*only);
  if (!variant.empty()) name += "." + variant;
  return name;
}

bool is_of_one_user(std::string_view name) {
  const size_t origin = name.find('.');
  const size_t end = origin == name.npos ? name.npos : name.find('.', origin + 1);
  return end != name.npos && name.substr(end).starts_with(".u");
}

Result<ImageStore> ImageStore::open(const std::string& directory) {
  TRY_ASSIGN(const auto store, [&]() -> Result<ImageStore> {
    if (auto prepared = prepare(directory); !prepared)
      return fail(std::move(prepared)
                      .error()
                      .with_context("open the image store")
                      .with_code(ErrorCode::installation)
                      .with_hint(kHint));
    return ImageStore(directory);
  }());
  return store;
}

std::optional<std::string> ImageStore::why_none(const std::string& directory) {
  const auto made = make_directories(directory, kDirectoryMode);
  if (made) {
    if (access(directory.c_str(), W_OK) == 0 || errno != EROFS) return std::nullopt;
    return directory + " is on a file system that is mounted read-only";
  }
  const int reason = made.error().errnum();
  const bool forbidden = reason == EACCES || reason == EPERM || reason == EROFS;
  struct stat status {};
  if (!forbidden || stat(directory.c_str(), &status) == 0 || errno != ENOENT) return std::nullopt;
  return made.error().message();
}

std::string ImageStore::image_path(const ImageKey& key) const {
  return directory_ + "/images/sha256/" + key.name() + ".sqsh";
}

std::string ImageStore::record_path(const ImageKey& key) const {
  return directory_ + "/images/sha256/" + key.name() + ".json";
}

std::optional<UniqueFd> ImageStore::find(const ImageKey& key) const {
  return find_named(key.name());
}

std::optional<std::pair<ImageKey, UniqueFd>> ImageStore::find_for(uid_t uid, ImageKey key) const {
  for (const auto& only : {std::optional<uid_t>(), std::optional<uid_t>(uid)}) {
    key.only = only;
    if (auto file = find(key)) return std::pair(std::move(key), std::move(*file));
  }
  return std::nullopt;
}

StoreRecord ImageStore::record(const std::string& name) const {
  return read_record(images() + "/" + name + ".json");
}

bool ImageStore::lists(const std::string& name) const {
  const auto names = list_directory(images());
  return names && std::find(names->begin(), names->end(), name + std::string(kImageEnding)) != names->end();
}

std::optional<UniqueFd> ImageStore::find_named(const std::string& name) const {
  if (!is_name(name)) return std::nullopt;
  // NFS asks the server for a directory that is opened: what another node has just put there is not missed.
  const auto images_fd = open_file(images(), O_RDONLY | O_DIRECTORY);
  if (!images_fd) return std::nullopt;
  const auto open_image = [&] {
    return open_file_at(images_fd->get(), name + ".sqsh", O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  };
  auto file = open_image();
  // Somebody asks at this moment whether it is in use.
  for (int tries = 0; !file && file.error().errnum() == EWOULDBLOCK && tries < kMostTries; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    file = open_image();
  }
  // Another node has just put it there, and this one still remembers that there was none: the list knows better.
  for (int tries = 0; !file && file.error().errnum() == ENOENT && tries < kMostTries && lists(name); ++tries) {
    std::this_thread::sleep_for(kVisible / kMostTries);
    file = open_image();
  }
  struct stat status {};
  if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
    return std::nullopt;
  if ((status.st_mode & 07777) != kImageMode && fchmod(file->get(), kImageMode) != 0) return std::nullopt;
  return std::move(*file);
}

Result<OutputFile> ImageStore::create() const {
  return OutputFile::create(directory_ + "/images/sha256/new.sqsh");
}

Result<bool> ImageStore::publish(OutputFile& file, const ImageKey& key, const StoreRecord& record) const {
  if (find(key)) return false;
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) return fail_errno(errno, "stat the new image");
  TRY(write_file_atomically(record_path(key), to_text(key, record, static_cast<uint64_t>(status.st_size)),
                            kRecordMode));
  unlink((images() + "/" + key.name() + kContentEnding).c_str());
  auto published = file.publish_as(image_path(key), kImageMode);
  if (published) return true;
  if (published.error().kind() == ErrorKind::exists) return false;
  // It may have its name all the same: then it keeps its record.
  if (!find(key)) unlink(record_path(key).c_str());
  return fail(std::move(published).error());
}

std::vector<StoredImage> ImageStore::list() const {
  const std::string directory = directory_ + "/images/sha256/";
  std::vector<StoredImage> images;
  for (const std::string& file : list_directory(directory).value_or(std::vector<std::string>())) {
    StoredImage image;
    if (!file.ends_with(kImageEnding)) continue;
    image.name = file.substr(0, file.size() - kImageEnding.size());
    struct stat status {};
    if (!is_name(image.name) || stat((directory + file).c_str(), &status) != 0) continue;
    image.bytes = static_cast<uint64_t>(status.st_size);
    const std::string record = directory + image.name + ".json";
    if (stat(record.c_str(), &status) == 0) image.record = read_record(record);
    image.used = status.st_mtim;
    image.pinned = access((directory + image.name + kPinEnding).c_str(), F_OK) == 0;
    images.push_back(std::move(image));
  }
  std::sort(images.begin(), images.end(), [](const StoredImage& a, const StoredImage& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  return images;
}

/// The times of files go by the kernel's tick, of 10 ms at most: two changes in one tick have the same (inode(7)).
constexpr std::chrono::milliseconds kFileTimes{100};

std::optional<ImageStore::Version> ImageStore::version() const {
  struct stat status {};
  if (stat((directory_ + "/images/sha256").c_str(), &status) != 0) return std::nullopt;
  using namespace std::chrono;
  const auto changed = system_clock::time_point(
      duration_cast<system_clock::duration>(seconds(status.st_mtim.tv_sec) + nanoseconds(status.st_mtim.tv_nsec)));
  if (abs(system_clock::now() - changed) < kFileTimes) return std::nullopt;
  return Version(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

namespace {

/// True: nobody else has it open, and who opens it from now on finds it busy. The lease ends with the descriptor.
std::optional<bool> lease_alone(int fd) {
  if (!leases_reach_all_nodes(fd)) return std::nullopt;
  // Who opens it meanwhile ends the lease by a signal: by one that does not end this process.
  if (fcntl(fd, F_SETSIG, SIGURG) != 0) return std::nullopt;
  if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) return true;
  return errno == EAGAIN && !is_server_asked_for_leases(fd) ? std::optional(false) : std::nullopt;
}

}  // namespace

std::optional<bool> ImageStore::is_in_use(const std::string& name) const {
  const auto file = find_named(name);
  const auto alone = file ? lease_alone(file->get()) : std::nullopt;
  return alone ? std::optional(!*alone) : std::nullopt;
}

bool ImageStore::is_use_unknown(const std::string& name) const {
  const auto file = find_named(name);
  return file && !lease_alone(file->get());
}

bool ImageStore::remove_unused(const std::string& name, bool anyway) const {
  const auto file = find_named(name);
  const std::string path = directory_ + "/images/sha256/" + name;
  if (!file || access((path + kPinEnding).c_str(), F_OK) == 0) return false;
  if (!anyway && !lease_alone(file->get()).value_or(false)) return false;
  // First what must not say anything of another image by this name.
  unlink((path + kContentEnding).c_str());
  if (unlink((path + std::string(kImageEnding)).c_str()) != 0) return false;
  unlink((path + ".json").c_str());
  struct stat status {};
  (void)add_counts(
      directory_,
      {.removed = 1, .removed_bytes = fstat(file->get(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0});
  return true;
}

Result<void> ImageStore::pin(const std::string& name, bool pinned) const {
  if (!find_named(name))
    return fail(Error(ErrorKind::not_found, "there is no image " + name + " in the store")
                    .with_code(ErrorCode::image_not_found));
  const std::string path = directory_ + "/images/sha256/" + name + kPinEnding;
  if (pinned) return write_file_atomically(path, "", kRecordMode);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
  return {};
}

std::optional<Digest> ImageStore::content(const std::string& name) const {
  const auto text = read_file(images() + "/" + name + kContentEnding, kMaxRecordBytes);
  const auto digest = Digest::parse(trim(text.value_or("")));
  return digest ? std::optional(*digest) : std::nullopt;
}

Result<void> ImageStore::note_content(const std::string& name, const Digest& content) const {
  return write_file_atomically(images() + "/" + name + kContentEnding, content.text() + "\n", kRecordMode);
}

Result<void> ImageStore::note_content_of(int file, const std::string& name, const Digest& content) const {
  struct stat read {
  }, named{};
  const auto now = find_named(name);
  if (!now || fstat(file, &read) != 0 || fstat(now->get(), &named) != 0) return {};
  const bool is_same = read.st_dev == named.st_dev && read.st_ino == named.st_ino;
  return is_same ? note_content(name, content) : Result<void>();
}

void ImageStore::sweep(int64_t now) const {
  for (const std::string& file : list_directory(images()).value_or(std::vector<std::string>())) {
    // ".NAME.json.<16 hex>" is one that was not written to its end.
    const bool part = file.starts_with('.');
    const std::string name = part ? file.substr(1, kDigestDigits + 1 + kOriginDigits) : file.substr(0, file.rfind('.'));
    const std::string path = images() + "/" + file;
    struct stat status {};
    if (file.ends_with(kImageEnding) || !is_name(name)) continue;
    if (!part && access((images() + "/" + name + ".sqsh").c_str(), F_OK) == 0) continue;
    if (stat(path.c_str(), &status) == 0 && status.st_mtime + kForgotten < now) unlink(path.c_str());
  }
}

Result<std::optional<Digest>> hash_content(int fd, const std::function<bool()>& go_on) {
  constexpr size_t kPiece = size_t{256} << 10U;
  constexpr off_t kStretch = off_t{4} << 20U;  // bytes between two questions
  std::string piece(kPiece, '\0');
  Sha256 hash;
  for (off_t at = 0, asked = -kStretch;;) {
    if (at >= asked + kStretch) {
      if (!go_on()) return std::nullopt;
      asked = at;
    }
    const ssize_t count = pread(fd, piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read the image");
    if (count == 0) return hash.finish();
    hash.update({piece.data(), static_cast<size_t>(count)});
    at += count;
  }
}

std::string StoredImage::reference() const {
  if (record.source.empty()) return "?";
  if (record.name.empty()) return record.source;
  return record.source + (record.tag.empty() ? "" : ":" + record.tag) +
         (record.name.starts_with("sha256:") ? "@" : ":") + record.name;
}

void ImageStore::touch(const std::string& name) const {
  (void)utimensat(AT_FDCWD, (images() + "/" + name + ".json").c_str(), nullptr, 0);
}

Result<void> wait_for_writers(int read_only_fd) {
  const auto end = std::chrono::steady_clock::now() + kWriterLimit;
  while (fcntl(read_only_fd, F_SETLEASE, F_RDLCK) != 0) {
    if (errno != EAGAIN) return {};  // this file system has no leases (NFS, some FUSE)
    const bool late = std::chrono::steady_clock::now() > end;
    if (late && is_server_asked_for_leases(read_only_fd)) return {};  // it gives none
    if (late)
      return fail(ErrorKind::denied, "the importer has ended, but something still holds its file open for writing");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  (void)fcntl(read_only_fd, F_SETLEASE, F_UNLCK);
  return {};
}

/// squashfs 4.0: magic number at 0, version at 28, bytes in use at 40; little endian.
Result<void> check_superblock(int fd) {
  constexpr size_t kSuperblockBytes = 96;
  std::array<unsigned char, kSuperblockBytes> head{};
  const Error damaged(ErrorKind::corrupt, "the importer wrote something that is no squashfs file");
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "stat the new image");
  if (pread(fd, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()) ||
      std::memcmp(head.data(), "hsqs", 4) != 0 || head[28] != 4 || head[29] != 0)
    return fail(damaged);
  uint64_t used = 0;
  for (size_t i = 8; i > 0; --i) used = used << 8U | head.at(40 + i - 1);
  if (used < kSuperblockBytes || used > static_cast<uint64_t>(status.st_size)) return fail(damaged);
  return {};
}

}  // namespace situla
