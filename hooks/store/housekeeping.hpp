// What is in the store, and what may go? `situla images`, `prune`, `rm`, `pin`, `verify`.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/sources/origin.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

/// As the service user. What is printed goes to `out`.
class Housekeeping {
 public:
  /// now: seconds since the epoch. user: he sees the images that he was let have or imported, without their other
  /// users, removes those that were imported for him, and pins none; nullopt: the administrator, for whom all are
  /// there.
  Housekeeping(const ImageStore& store, std::ostream& out, int64_t now, std::optional<uid_t> user = {})
      : store_(store), out_(out), now_(now), user_(user) {}

  /// The most recently requested first: a table, or a JSON list with bytes and seconds since the epoch.
  Result<void> show(bool json) const;
  /// What this node's steps asked the store for, and what it holds, in Prometheus' text format. ErrorKind::denied for a
  /// user.
  Result<void> metrics() const;
  struct Prune {
    std::chrono::seconds unused_for{0};  ///< images that were requested since then stay
    std::optional<uint64_t> to;          ///< bytes: no more go than are needed for that
    bool dry_run = false;                ///< only says what would go
  };
  /// The least recently requested go first; never one that is in use or pinned.
  Result<void> prune(const Prune& what) const;
  /// words: references ("registry.test/debian", with or without a tag) or digests, of which 6 digits are enough.
  /// ErrorKind::not_found for a word that means no image, failure or denied for an image that cannot go. All words are
  /// tried.
  Result<void> remove(const std::vector<std::string>& words, bool force = false) const;
  /// ErrorKind::denied for a user: what is pinned takes everybody's room.
  Result<void> pin(const std::vector<std::string>& words, bool pinned) const;
  /// Reads images, without words all of them, and compares them with what they held after their import.
  /// ErrorKind::corrupt when one is not the same.
  Result<void> verify(const std::vector<std::string>& words) const;
  /// The one whose reference differs from this one in the fewest characters, and in few; empty: there is none.
  [[nodiscard]] std::string alike(const std::string& reference) const;

 private:
  using Granted = std::map<std::string, std::set<uid_t>>;
  /// What there is for the user, longest unused first; granted: granted_users().
  [[nodiscard]] std::vector<StoredImage> images(const Granted& granted) const;
  [[nodiscard]] std::vector<StoredImage> images() const { return images(user_ ? granted() : Granted()); }
  [[nodiscard]] Granted granted() const;
  [[nodiscard]] bool may_remove(const StoredImage& image) const;
  /// Why an image was not removed; word: who meant it.
  [[nodiscard]] Error stays(const StoredImage& image, const std::string& word) const;
  [[nodiscard]] Result<std::vector<StoredImage>> find(const std::string& word) const;
  [[nodiscard]] Result<const char*> verify(const StoredImage& image) const;
  void say_removed(const StoredImage& image, bool dry_run) const;
  [[nodiscard]] std::string age(int64_t time) const;

  const ImageStore& store_;
  std::ostream& out_;
  int64_t now_;
  std::optional<uid_t> user_;
};

/// For a user whose image the registry does not have: alike() of what he was let have. name: a tag, or "sha256:...".
std::string image_alike(const ImageStore& store, uid_t user, const Origin& origin, const std::string& name);

}  // namespace situla
