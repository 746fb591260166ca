#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/sources/job_answers.hpp"
#include "hooks/store/counts.hpp"
#include "hooks/store/grants.hpp"
#include "hooks/store/image_store.hpp"
#include "hooks/turn/lease.hpp"
#include "hooks/turn/limits.hpp"
#include "tests/fuzz/place.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// Where a store lies for as long as this process runs.
const Place& place() {
  static const Place made;
  return made;
}

/// The only file beneath a directory.
std::string file_beneath(const std::string& directory) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) return entry.path().string();
  std::abort();
}

void read_image_record(std::string_view bytes) {
  static const std::string directory = place().path() + "/images";
  static const auto store = ImageStore::open(directory);
  static const ImageKey key{Digest(), origin_key({"registry.test", "x"}), "", std::nullopt};
  if (!store) std::abort();
  const std::string file = store->images() + "/" + key.name();
  write_whole(file + ".sqsh", "");
  write_whole(file + ".json", bytes);
  write_whole(file + ".sha256", bytes);
  const auto images = store->list();
  if (images.size() != 1 || images.front().name != key.name() || images.front().reference().empty()) std::abort();
  const auto content = store->content(key.name());
  if (content && bytes.find(content->text()) == std::string_view::npos) std::abort();
  if (!store->find(key)) std::abort();
  // One that was written is read as it was.
  StoreRecord record = store->record(key.name());
  const ImageKey other{Digest({1}), key.origin, "lz4", 1000U};
  auto made = store->create();
  if (!made || !store->publish(*made, other, record)) std::abort();
  const StoreRecord again = store->record(other.name());
  const bool same = again.fetched_bytes == record.fetched_bytes && again.imported == record.imported &&
                    again.uid == record.uid && again.architecture == record.architecture;
  if (!same || !store->remove_unused(other.name(), true)) std::abort();
}

/// A grant that is kept for one question is no answer to another one.
void read_grant(std::string_view bytes) {
  static const Grants grants(place().path(), 1000);
  static const ImageQuestion question{1000, {"registry.test", "x"}, "1", "linux/amd64/", "", ""};
  static const std::string file = [] {
    if (!grants.put(question, Grant{})) std::abort();
    return file_beneath(place().path() + "/grants");
  }();
  write_whole(file, bytes);
  (void)granted_users(place().path());
  const auto found = grants.find(question);
  ImageQuestion other = question;
  other.name = "2";
  if (grants.find(other) || grants.find_pin(question, "12")) std::abort();
  if (!found) return;
  if (!grants.put(question, *found)) std::abort();
  const auto again = grants.find(question);
  if (!again || Grant::fields(*again) != Grant::fields(*found)) std::abort();
}

void read_pin(std::string_view bytes) {
  static const Grants grants(place().path() + "/pins", 1000);
  static const ImageQuestion question{1000, {"registry.test", "x"}, "1", "linux/amd64/", "", ""};
  static const std::string file = [] {
    if (!grants.put_pin(question, "12", JobPin{})) std::abort();
    return file_beneath(place().path() + "/pins");
  }();
  write_whole(file, bytes);
  const auto found = grants.find_pin(question, "12");
  if (found && (!grants.put_pin(question, "12", *found) || read_file(file).value_or("") != bytes)) std::abort();
}

void read_counts_file(std::string_view bytes) {
  static const std::string store = place().path() + "/counted";
  static const std::string file = [] {
    if (!add_counts(store, {})) std::abort();
    return file_beneath(store);
  }();
  write_whole(file, bytes);
  const uint64_t hits = read_counts(store).hits;
  if (!add_counts(store, {.hits = 1}) || read_counts(store).hits != hits + 1) std::abort();
}

void read_lease(std::string_view bytes) {
  static const std::string directory = place().path() + "/leases";
  if (const auto record = LeaseRecord::parse(bytes)) {
    const auto again = LeaseRecord::parse(record->text());
    if (!again || again->text() != record->text()) std::abort();
  }
  if (!make_directories(directory, 0700)) std::abort();
  write_whole(directory + "/lease", bytes);
  if (!sweep_dead_leases(directory, "12.0")) std::abort();
}

/// How much another node's import has written, by its own word.
void read_slot(std::string_view bytes) {
  static const std::string directory = place().path() + "/slots";
  if (!make_directories(directory, 0700)) std::abort();
  write_whole(directory + "/other.node.1000.0", bytes);
  const auto slot = ImportSlot::acquire(
      directory, 1000, "12.0", 1, [] {}, [] { return true; });
  if (!slot || !*slot) std::abort();
  const auto others = (*slot)->others();
  if (others.of_user != others.of_all) std::abort();
  (void)sweep_free_slots(directory, "12.0");
}

void read_job_answer(std::string_view bytes) {
  static const std::string cache = place().path() + "/cache";
  static const auto answers = [] {
    if (!make_directories(cache, 0700)) std::abort();
    return JobAnswers::open(cache, {"12", "cluster"}, "ubuntu", ResolveRule());
  }();
  if (!answers) std::abort();
  static const std::string file = [] {
    if (!answers->keep(JobAnswer{})) std::abort();
    return file_beneath(cache);
  }();
  write_whole(file, bytes);
  const auto found = answers->find(UINT64_MAX);
  if (found && (!answers->keep(*found) || read_file(file).value_or("") != bytes)) std::abort();
}

}  // namespace

/// Files beneath a store and a user's cache, as a crash, another release or another node may leave them. The first byte
/// says which.
void situla::fuzz(std::string_view bytes) {
  if (bytes.empty()) return;
  constexpr std::array kReaders = {read_image_record, read_grant, read_pin,       read_counts_file,
                                   read_lease,        read_slot,  read_job_answer};
  const auto choice = static_cast<unsigned char>(bytes.front());
  kReaders.at(choice % kReaders.size())(bytes.substr(1));
}
