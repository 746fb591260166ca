#include "hooks/store/housekeeping.hpp"

#include <algorithm>
#include <array>
#include <ostream>
#include <sstream>

#include <sys/statvfs.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/json.hpp"
#include "hooks/store/counts.hpp"
#include "hooks/store/grants.hpp"

namespace situla {
namespace {

constexpr size_t kShortDigest = 12, kLeastDigits = 6;

std::string_view digest_digits(const StoredImage& image) {
  return std::string_view(image.name).substr(0, image.name.find('.'));
}

/// "<digest>.<origin>", without what follows.
std::string subject_of_grants(const StoredImage& image) {
  return image.name.substr(0, image.name.find('.', image.name.find('.') + 1));
}

/// A digest in it only by its beginning, as everywhere in the table.
std::string shown_reference(const StoredImage& image) {
  std::string text = image.reference();
  const size_t digest = text.find("@sha256:");
  if (digest != std::string::npos) text.resize(std::min(text.size(), digest + 8 + kShortDigest));
  return printable(text);
}

std::string state(const ImageStore& store, const StoredImage& image) {
  const auto used = store.is_in_use(image.name);
  std::string text = !used ? "unknown" : *used ? "in use" : "";
  if (image.pinned) text += text.empty() ? "pinned" : ", pinned";
  return text;
}

bool means(const std::string& word, const StoredImage& image) {
  std::string_view digits = word;
  if (digits.starts_with("sha256:")) digits.remove_prefix(7);
  if (digits.size() >= kLeastDigits && digest_digits(image).starts_with(digits)) return true;
  const auto reference = ImageReference::parse(word);
  if (!reference || image.record.source != reference->registry + "/" + reference->repository) return false;
  if (reference->digest)
    return digest_digits(image) == reference->digest->hex() || image.record.name == reference->digest->text();
  const size_t path = word.find_last_of("/#");
  const bool any_tag = word.find(':', path == std::string::npos ? 0 : path) == std::string::npos;
  return any_tag || image.record.name == reference->tag || image.record.tag == reference->tag;
}

struct Metric {
  std::string_view name, kind, help;
  uint64_t value;
};

}  // namespace

std::string Housekeeping::age(int64_t time) const {
  const int64_t seconds = std::max<int64_t>(now_ - time, 0);
  constexpr std::array<std::pair<int64_t, const char*>, 3> kUnits = {
      {{86400, " d ago"}, {3600, " h ago"}, {60, " min ago"}}};
  for (const auto& [unit, name] : kUnits)
    if (seconds >= 2 * unit) return std::to_string(seconds / unit) + name;
  return seconds >= 60 ? "1 min ago" : "now";
}

Housekeeping::Granted Housekeeping::granted() const {
  return granted_users(store_.directory(), user_);
}

std::vector<StoredImage> Housekeeping::images(const Granted& granted) const {
  auto images = store_.list();
  if (user_)
    std::erase_if(images, [&](const StoredImage& image) {
      return !may_remove(image) && (is_of_one_user(image.name) || !granted.contains(subject_of_grants(image)));
    });
  return images;
}

bool Housekeeping::may_remove(const StoredImage& image) const {
  return !user_ || image.record.uid == *user_;
}

Result<void> Housekeeping::metrics() const {
  if (user_) return fail(ErrorKind::denied, "the numbers of the store are the administrator's");
  const StoreCounts counts = read_counts(store_.directory());
  uint64_t images = 0, bytes = 0;
  for (const StoredImage& image : store_.list()) {
    ++images;
    bytes += image.bytes;
  }
  struct statvfs disk {};
  (void)statvfs(store_.directory().c_str(), &disk);
  const std::array<Metric, 14> metrics = {{
      {"image_hits_total", "counter", "Steps whose image the store had", counts.hits},
      {"image_misses_total", "counter", "Steps for which an image was imported", counts.misses},
      {"image_failures_total", "counter", "Steps that got no image", counts.failures},
      {"image_waits_total", "counter", "Steps that waited for another import of their image", counts.waits},
      {"image_offline_total", "counter", "Steps started while their registry did not answer", counts.offline},
      {"image_local_total", "counter", "Steps that got a copy of their image on the node's disk", counts.local},
      {"saved_bytes_total", "counter", "Bytes of layers that hits did not fetch", counts.saved_bytes},
      {"fetched_bytes_total", "counter", "Bytes of layers that misses fetched", counts.fetched_bytes},
      {"images_removed_total", "counter", "Images removed from the store", counts.removed},
      {"removed_bytes_total", "counter", "Bytes of images removed from the store", counts.removed_bytes},
      {"store_images", "gauge", "Images in the store", images},
      {"store_bytes", "gauge", "Bytes of images in the store", bytes},
      {"store_free_bytes", "gauge", "Free bytes of the store's file system", uint64_t{disk.f_bavail} * disk.f_frsize},
      {"store_size_bytes", "gauge", "Bytes of the store's file system", uint64_t{disk.f_blocks} * disk.f_frsize},
  }};
  for (const Metric& metric : metrics)
    out_ << "# HELP situla_" << metric.name << ' ' << metric.help << "\n# TYPE situla_" << metric.name << ' '
         << metric.kind << "\nsitula_" << metric.name << ' ' << metric.value << '\n';
  return {};
}

Result<void> Housekeeping::show(bool json) const {
  const auto users = granted();
  auto images = this->images(users);
  std::reverse(images.begin(), images.end());
  const auto users_of = [&](const StoredImage& image) {
    const auto found = users.find(subject_of_grants(image));
    return found == users.end() ? std::vector<uint64_t>()
                                : std::vector<uint64_t>(found->second.begin(), found->second.end());
  };
  if (json) {
    Json list = Json::list();
    for (const StoredImage& image : images)
      list.add(Json::object({{"reference", image.reference()},
                             {"digest", "sha256:" + std::string(digest_digits(image))},
                             {"name", image.name},
                             {"bytes", image.bytes},
                             {"used", int64_t{image.used.tv_sec}},
                             {"imported", image.record.imported},
                             {"uid", may_remove(image) ? image.record.uid : std::nullopt},
                             {"users", users_of(image)},
                             {"in_use", store_.is_in_use(image.name)},
                             {"pinned", image.pinned}}));
    out_ << to_text(list) << '\n';
    return {};
  }
  std::vector<std::array<std::string, 6>> rows = {{"REFERENCE", "DIGEST", "SIZE", "LAST USE", "USERS", "STATE"}};
  for (const StoredImage& image : images)
    rows.push_back({shown_reference(image), std::string(digest_digits(image).substr(0, kShortDigest)),
                    format_size(image.bytes), age(image.used.tv_sec), std::to_string(users_of(image).size()),
                    state(store_, image)});
  std::array<size_t, 6> widths{};
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths.at(i) = std::max(widths.at(i), row.at(i).size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += flush_left(row.at(i), widths.at(i)) + "  ";
    out_ << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
  return {};
}

void Housekeeping::say_removed(const StoredImage& image, bool dry_run) const {
  out_ << (dry_run ? "would remove " : "removed ") << shown_reference(image) << ' '
       << digest_digits(image).substr(0, kShortDigest) << ", " << format_size(image.bytes) << ", last used "
       << age(image.used.tv_sec) << '\n';
}

Result<void> Housekeeping::prune(const Prune& what) const {
  auto images = store_.list();
  std::erase_if(images, [this](const StoredImage& image) { return !may_remove(image); });
  uint64_t left = 0, gone = 0, unknown = 0;
  for (const StoredImage& image : images) left += image.bytes;
  for (const StoredImage& image : images) {
    if (what.to && left <= *what.to) break;
    if (image.used.tv_sec + what.unused_for.count() > now_) break;
    const bool goes =
        what.dry_run ? !image.pinned && store_.is_in_use(image.name) == false : store_.remove_unused(image.name);
    if (!goes && !image.pinned && store_.is_use_unknown(image.name)) ++unknown;
    if (!goes) continue;
    say_removed(image, what.dry_run);
    left -= image.bytes;
    gone += image.bytes;
  }
  if (unknown > 0)
    out_ << unknown << " stay: their file system cannot tell whether they are in use"
         << (user_ ? "" : "; situla rm --force removes them") << '\n';
  out_ << format_size(gone) << (what.dry_run ? " would be freed, " : " freed, ") << format_size(left) << " left\n";
  return {};
}

Result<std::vector<StoredImage>> Housekeeping::find(const std::string& word) const {
  auto images = this->images();
  std::erase_if(images, [&](const StoredImage& image) { return !means(word, image); });
  if (!images.empty()) return images;
  const auto reference = ImageReference::parse(word);
  const std::string near =
      reference ? alike(reference->registry + "/" + reference->repository + ":" + reference->tag) : "";
  return fail(
      Error(ErrorKind::not_found, "there is no image '" + printable(word) + "' in the store")
          .with_code(ErrorCode::image_not_found)
          .with_hint((near.empty() ? "" : "did you mean " + printable(near) + "? ") + "'situla images' lists them"));
}

Error Housekeeping::stays(const StoredImage& image, const std::string& word) const {
  const auto used = store_.is_in_use(image.name);
  const std::string what = "remove " + shown_reference(image) + ": ";
  if (image.pinned)
    return Error(ErrorKind::failure, what + "it is pinned")
        .with_code(ErrorCode::image_in_use)
        .with_hint((user_ ? "ask the administrator: situla pin --undo " : "situla pin --undo ") + shell_quote(word));
  if (used && !*used)
    return Error(ErrorKind::failure, what + "something has just used it")
        .with_code(ErrorCode::image_in_use)
        .with_hint("try again");
  if (used)
    return Error(ErrorKind::failure, what + "it is in use on this node")
        .with_code(ErrorCode::image_in_use)
        .with_hint(
            "try again when the steps and containers that run on it have ended; 'situla images' shows its state");
  return Error(ErrorKind::failure, what + "its file system cannot tell whether it is in use")
      .with_code(ErrorCode::image_in_use)
      .with_hint(user_ ? "ask the administrator: situla rm --force " + shell_quote(word)
                       : "--force removes it all the same");
}

Result<void> Housekeeping::remove(const std::vector<std::string>& words, bool force) const {
  if (force && user_) return fail(ErrorKind::denied, "rm --force: the store is the administrator's");
  Result<void> result;
  // Of several the last one ends the command, and the others are said before.
  const auto failed = [&](Error error) {
    if (!result) out_ << result.error().line() << '\n';
    result = fail(std::move(error));
  };
  for (const std::string& word : words) {
    const auto images = find(word);
    if (!images) failed(images.error());
    for (const StoredImage& image : images.value_or(std::vector<StoredImage>())) {
      if (!may_remove(image)) {
        failed(Error(ErrorKind::denied, "remove " + shown_reference(image) + ": it was imported for another user"));
        continue;
      }
      if (store_.remove_unused(image.name, force)) {
        say_removed(image, false);
        continue;
      }
      failed(stays(image, word));
    }
  }
  return result;
}

Result<void> Housekeeping::pin(const std::vector<std::string>& words, bool pinned) const {
  if (user_)
    return fail(Error(ErrorKind::denied, "pin: only the administrator keeps images in the node's store")
                    .with_code(ErrorCode::denied)
                    .with_hint("'situla import' keeps one in a file of your own"));
  for (const std::string& word : words) {
    TRY_ASSIGN(const auto images, find(word));
    for (const StoredImage& image : images) {
      TRY(store_.pin(image.name, pinned));
      out_ << (pinned ? "pinned " : "not pinned any more: ") << shown_reference(image) << ' '
           << digest_digits(image).substr(0, kShortDigest) << '\n';
    }
  }
  return {};
}

/// What is said of it before its name.
Result<const char*> Housekeeping::verify(const StoredImage& image) const {
  const auto file = store_.find_named(image.name);
  if (!file) return "gone";
  // Whoever asked may be gone: then nobody reads on for him.
  const auto found = hash_content(file->get(), [this] { return out_.flush().good(); });
  if (!found) return "unreadable";
  if (!*found) return fail(ErrorKind::cancelled, "interrupted");
  const auto expected = store_.content(image.name);
  if (expected) return **found == *expected ? "ok" : "damaged";
  (void)store_.note_content_of(file->get(), image.name, **found);
  return "first read";
}

Result<void> Housekeeping::verify(const std::vector<std::string>& words) const {
  std::vector<StoredImage> images = words.empty() ? this->images() : std::vector<StoredImage>();
  for (const std::string& word : words) {
    TRY_ASSIGN(auto meant, find(word));
    images.insert(images.end(), std::make_move_iterator(meant.begin()), std::make_move_iterator(meant.end()));
  }
  size_t bad = 0;
  for (const StoredImage& image : images) {
    TRY_ASSIGN(const std::string_view found, verify(image));
    if (found == "damaged" || found == "unreadable") ++bad;
    out_ << found << ": " << shown_reference(image) << ' ' << digest_digits(image).substr(0, kShortDigest) << ", "
         << format_size(image.bytes) << std::endl;
  }
  if (bad == 0) return {};
  return fail(Error(ErrorKind::corrupt, std::to_string(bad) + " of " + std::to_string(images.size()) +
                                            " images do not hold what they held after their import")
                  .with_code(ErrorCode::image_damaged)
                  .with_hint("'situla rm' removes them, the next step imports them again; look at the disk, too"));
}

std::string Housekeeping::alike(const std::string& reference) const {
  constexpr size_t kLongest = 300;  // the cost is the product of the lengths
  std::string nearest;
  size_t least = std::min<size_t>(4, reference.size() / 4 + 1);
  if (reference.size() > kLongest) return nearest;
  for (const StoredImage& image : images()) {
    const StoreRecord& record = image.record;
    const std::string name = record.tag.empty() ? image.reference() : record.source + ":" + record.tag;
    const size_t distance = name.size() > kLongest ? least : edit_distance(reference, name);
    if (distance == 0 || distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string image_alike(const ImageStore& store, uid_t user, const Origin& origin, const std::string& name) {
  if (name.starts_with("sha256:")) return {};
  std::ostringstream unused;
  std::string found =
      Housekeeping(store, unused, 0, user).alike(origin.registry + "/" + origin.repository + ":" + name);
  // What proves the registry is no part of a reference.
  if (const size_t proof = found.find(' '); proof != std::string::npos)
    found.erase(proof, found.find('/', proof) - proof);
  return found;
}

}  // namespace situla
