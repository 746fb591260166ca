// Has this node a copy of its own of an image that a store of several nodes has? Steps get it instead, and it is made
// while a container runs from the store's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

/// Who may have an image, and whether there is one, only the store says: each question here has an image that it has
/// just given out. A copy has the image's name and the SHA-256 of its content in its own name, which it gets when that
/// many bytes with that sum are on the disk: none under it can be an older one's.
///
/// `<local_tier>/images/sha256/<name>.<SHA-256>.sqsh` and `.json`, as in a store, and
/// `<local_tier>/images/<name>.part`: at most one, of a step that ended before the copy did. The next one goes on with
/// it.
class LocalTier {
 public:
  /// most: what all copies may take.
  LocalTier(ImageStore store, ImageStore local, DiskShare most)
      : store_(std::move(store)), local_(std::move(local)), most_(most) {}
  /// None where situla.toml names no directory, where it would spare nothing, or it cannot be used: the log says why.
  static std::optional<LocalTier> open(const SiteConfig& config, const std::string& store, LogSink& log);

  /// The copy of an image of the store, open for reading. image: the store's file of that name.
  [[nodiscard]] std::optional<UniqueFd> find(const std::string& name, int image) const;
  /// Makes the copy, and notes in the store what the image holds, where nobody has. Copies go for it that nothing has
  /// open, those that nobody has asked for for longest first, and those of images that the store has no more. One
  /// process of the node copies at a time. go_on: asked now and then; no: another one goes on from there.
  /// ErrorKind::no_space: there is no room.
  Result<void> fill(const std::string& name, const std::function<bool()>& go_on) const;

  /// Whether the image is a copy's file.
  [[nodiscard]] bool holds(int image) const;
  [[nodiscard]] const ImageStore& copies() const { return local_; }

 private:
  /// Files: `there` bytes of `bytes` are in `to`, and it is written behind them.
  struct Copying {
    int from, to;
    uint64_t bytes, there;
  };
  [[nodiscard]] Result<std::optional<FileLock>> wait_for_others(const std::function<bool()>& go_on) const;
  void sweep(const std::string& name) const;
  [[nodiscard]] Result<void> make_room(uint64_t bytes, uint64_t there) const;
  [[nodiscard]] Result<std::optional<Digest>> copy(const Copying& what, const std::function<bool()>& go_on) const;
  [[nodiscard]] Result<void> write_out(int file, uint64_t from, uint64_t to) const;
  [[nodiscard]] Result<void> check(const std::string& name, int image, const Digest& content) const;

  ImageStore store_, local_;
  DiskShare most_;
};

}  // namespace situla
