#include "plugin/broker/node/container_images.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "plugin/broker/node/running.hpp"

namespace situla {
namespace {

constexpr size_t kMostNotes = 128;      // of one user
constexpr size_t kMostNoteBytes = 512;  // three numbers and a name

std::string directory_in(const std::string& runtime) {
  return runtime + "/copies";
}

/// <uid>.<identity>; no container without an identity has a note.
Result<std::string> note_name(uid_t uid, const CopiedImageWanted& copy) {
  TRY_ASSIGN(const RunningKey key, RunningKey::of_container(uid, copy.identity, -1));
  return key.text();
}

/// What tells the copy from any other file.
std::string marks_of(const CopiedImageWanted& copy) {
  return std::to_string(copy.inode) + " " + std::to_string(copy.bytes) + " " + std::to_string(copy.changed) + " ";
}

/// Makes room for one more.
void drop_oldest(const std::string& directory, uid_t uid) {
  const std::string prefix = std::to_string(uid) + ".";
  std::vector<std::pair<time_t, std::string>> notes;
  for (const std::string& name : list_directory(directory).value_or(std::vector<std::string>())) {
    const std::string path = directory + "/" + name;
    struct stat info {};
    if (name.starts_with(prefix) && lstat(path.c_str(), &info) == 0) notes.emplace_back(info.st_mtime, path);
  }
  if (notes.size() < kMostNotes) return;
  std::sort(notes.begin(), notes.end());
  notes.resize(notes.size() - kMostNotes + 1);
  for (const auto& [time, path] : notes) (void)unlink(path.c_str());
}

}  // namespace

Result<void> note_copied_image(const std::string& runtime, uid_t uid, const CopiedImageWanted& copy,
                               const std::string& image) {
  TRY_ASSIGN(const std::string name, note_name(uid, copy));
  const std::string directory = directory_in(runtime);
  TRY(make_directories(directory, 0700));
  drop_oldest(directory, uid);
  return write_file_atomically(directory + "/" + name, marks_of(copy) + image, 0600, Sync::no);
}

std::optional<std::string> find_copied_image(const std::string& runtime, uid_t uid, const CopiedImageWanted& copy) {
  const auto name = note_name(uid, copy);
  if (!name) return std::nullopt;
  const std::string path = directory_in(runtime) + "/" + *name;
  const auto note = read_file(path, kMostNoteBytes);
  const std::string marks = marks_of(copy);
  if (!note || !note->starts_with(marks)) return std::nullopt;
  (void)utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return note->substr(marks.size());
}

}  // namespace situla
