// What is in the store, and what may go? For the administrator: `situla images`, `prune`, `rm`, `pin`,
// `verify`.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

/// As the service user. What is printed goes to `out`.
class Housekeeping {
 public:
  /// now: seconds since the epoch.
  Housekeeping(const ImageStore& store, std::ostream& out, int64_t now) : store_(store), out_(out), now_(now) {}

  /// The most recently requested first: a table, or a JSON list with bytes and seconds since the epoch.
  Result<void> show(bool json) const;
  struct Prune {
    std::chrono::seconds unused_for{0};  ///< images that were requested since then stay
    std::optional<uint64_t> to;          ///< bytes: no more go than are needed for that
    bool dry_run = false;                ///< only says what would go
  };
  /// The least recently requested go first; never one that is in use or pinned.
  Result<void> prune(const Prune& what) const;
  /// words: references ("registry.test/debian", with or without a tag) or digests, of which 6 digits are enough.
  /// ErrorKind::not_found for a word that means no image, failure for an image that cannot go. All words are tried.
  Result<void> remove(const std::vector<std::string>& words) const;
  Result<void> pin(const std::vector<std::string>& words, bool pinned) const;
  /// Reads images, without words all of them, and compares them with what they held after their import.
  /// ErrorKind::corrupt when one is not the same.
  Result<void> verify(const std::vector<std::string>& words) const;

 private:
  [[nodiscard]] Result<std::vector<StoredImage>> find(const std::string& word) const;
  [[nodiscard]] Result<const char*> verify(const StoredImage& image) const;
  void say_removed(const StoredImage& image, bool dry_run) const;
  [[nodiscard]] std::string age(int64_t time) const;

  const ImageStore& store_;
  std::ostream& out_;
  int64_t now_;
};

}  // namespace situla
