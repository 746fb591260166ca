// Where do a node's imported images live, under which names, and what is known about them? DESIGN.md section 4.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/digest.hpp"
#include "hooks/sources/origin.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla {

/// What the name of an image's file ends in, behind ImageKey::name().
inline constexpr std::string_view kImageEnding = ".sqsh";

/// How an origin is written in the name of a file: 32 hexadecimal digits. What is imported by one origin is never given
/// to somebody who asks by another one.
std::string origin_key(const Origin& origin);

/// What an image of the store is known by.
struct ImageKey {
  Digest digest;        ///< of the manifest
  std::string origin;   ///< origin_key()
  std::string variant;  ///< "" or "lz4"
  /// Of the one user who gets it: blocks in it came from files of other origins that he has imported.
  std::optional<uid_t> only;

  /// "<64 hex>.<32 hex>[.u<uid>][.<variant>]"
  [[nodiscard]] std::string name() const;
};

/// Whether an image of that name (ImageKey::name()) is one user's alone.
bool is_of_one_user(std::string_view name);

/// What is written about an image beside its name.
struct StoreRecord {
  std::string source;  ///< "registry.test/debian"; with what proves the registry's name, where that is not the node
  std::string name;    ///< what was asked for: "12", "sha256:..."; empty: an older release did not write it
  std::string tag;     ///< beside a name that is a digest, if there was one: ImageQuestion::tag
  std::string architecture;
  /// For whom it was imported, whose share of the store it takes. None: an older release did not write it.
  std::optional<uid_t> uid;
  uint64_t fetched_bytes = 0;
  int64_t imported = 0;  ///< seconds since the epoch
};

/// One of all the images.
struct StoredImage {
  std::string name;    ///< ImageKey::name()
  StoreRecord record;  ///< empty when it cannot be read
  uint64_t bytes = 0;
  timespec used{};      ///< when it was asked for last
  bool pinned = false;  ///< it stays until somebody unpins it

  /// "registry.test/debian:12", "registry.test/debian@sha256:...", or both
  [[nodiscard]] std::string reference() const;
};

/// `<store>/images/sha256/<ImageKey::name()>.sqsh`, mode 0400, and beside it, 0600, `.json` and maybe `.pin` and
/// `.sha256`, in directories of 0700. All of it belongs to the service user; who gets an image gets a descriptor of it.
class ImageStore {
 public:
  /// Makes the directories that are missing, closes those of an older release, and removes images of it, whose names
  /// do not say where they came from. ErrorKind::denied when they cannot be written.
  static Result<ImageStore> open(const std::string& directory);
  /// Why this process can have no store there: nobody has made the directory, and it cannot; or nothing can be written
  /// to its file system. None: it can, or what is there is wrong, and open() says what.
  static std::optional<std::string> why_none(const std::string& directory);

  [[nodiscard]] std::string image_path(const ImageKey& key) const;
  [[nodiscard]] std::string record_path(const ImageKey& key) const;
  [[nodiscard]] std::string lease_path(const ImageKey& key) const { return leases() + "/" + key.name(); }
  [[nodiscard]] std::string images() const { return directory_ + "/images/sha256"; }
  [[nodiscard]] std::string leases() const { return directory_ + "/leases"; }
  [[nodiscard]] std::string layers(uid_t uid) const { return directory_ + "/layers/" + std::to_string(uid); }
  [[nodiscard]] std::string slots() const { return directory_ + "/slots"; }
  [[nodiscard]] const std::string& directory() const { return directory_; }

  /// A complete image, open for reading; nullopt if the store has none.
  [[nodiscard]] std::optional<UniqueFd> find(const ImageKey& key) const;
  /// As everybody gets it who is let in to its origin, or this user's own. key.only: none.
  [[nodiscard]] std::optional<std::pair<ImageKey, UniqueFd>> find_for(uid_t uid, ImageKey key) const;
  /// The same by its name, "<64 hex>.<32 hex>...", as `find()` of a key with that name.
  [[nodiscard]] std::optional<UniqueFd> find_named(const std::string& name) const;
  /// Empty when it cannot be read.
  [[nodiscard]] StoreRecord record(const std::string& name) const;
  /// A file without a name, to be written.
  [[nodiscard]] Result<OutputFile> create() const;
  /// All images; first those that nobody asked for for longest. What cannot be read is left out.
  [[nodiscard]] std::vector<StoredImage> list() const;
  /// Another one after an image came or went; nullopt while that is so short ago that the next change might not show.
  using Version = std::pair<int64_t, int64_t>;
  [[nodiscard]] std::optional<Version> version() const;
  /// Whether a process or a mount of this node has the image open (fcntl(2), F_SETLEASE); nullopt where the file system
  /// cannot tell for all nodes, and when there is no such image.
  [[nodiscard]] std::optional<bool> is_in_use(const std::string& name) const;
  /// There is such an image, and the file system cannot tell.
  [[nodiscard]] bool is_use_unknown(const std::string& name) const;
  /// Removes an image that is not in use, and not pinned. False if it is, or nobody can tell. Who asks for it meanwhile
  /// finds none. anyway: also one that is in use, as far as is known.
  [[nodiscard]] bool remove_unused(const std::string& name, bool anyway = false) const;
  Result<void> pin(const std::string& name, bool pinned) const;
  /// What the file holds, since somebody has read it whole after the import.
  [[nodiscard]] std::optional<Digest> content(const std::string& name) const;
  Result<void> note_content(const std::string& name, const Digest& content) const;
  /// The same for who has read this file for minutes: nothing, if another one has its name by now.
  Result<void> note_content_of(int file, const std::string& name, const Digest& content) const;
  /// Removes what a crash left beside an image that never came to be, or had gone. now: file_system_time().
  void sweep(int64_t now) const;

  /// Checks the sealed file, writes the record, and gives the file its name: no image is without a record. False:
  /// another import was faster, and its file stays.
  Result<bool> publish(OutputFile& file, const ImageKey& key, const StoreRecord& record) const;
  /// When the image was asked for last: who cleans the store goes by it (packaging/guides/admin.md).
  void touch(const std::string& name) const;

 private:
  [[nodiscard]] bool lists(const std::string& name) const;
  explicit ImageStore(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;
};

/// Waits until nobody has the file open for writing any more (fcntl(2), F_SETLEASE), where the file system can tell.
/// read_only_fd: of a file of this process's user, which this process has open for reading only.
Result<void> wait_for_writers(int read_only_fd);
/// sha256 of all its bytes, read in pieces; nullopt when go_on says no between two of them.
Result<std::optional<Digest>> hash_content(int fd, const std::function<bool()>& go_on);
/// Whether the file can be a squashfs image at all: its superblock's magic number, version and size.
Result<void> check_superblock(int fd);

}  // namespace situla
