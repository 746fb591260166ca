// How does a file appear only when it is whole? Nameless until then (O_TMPFILE), so that even SIGKILL leaves nothing.
#pragma once

#include <string>

#include <sys/stat.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// A new file in the directory of its final path. It has a name before that, of the form ".situla-<16 hex>.part", in
/// two cases: all the time where the file system has no O_TMPFILE (NFS, some FUSE), and between the last two system
/// calls of publish_over(), since Linux gives a nameless file no name that is taken. A part is locked by its writer.
/// One whose writer was killed stays until the same user's next create() in that directory, so that there are never
/// more of them than were written there at the same time.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&&) noexcept = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// Changes fd() to one that can only read, for when somebody else has written the file and must not any more.
  Result<void> seal();
  /// Syncs content and gives it its name with the mode (octal). An existing name: ErrorKind::exists. The directory is
  /// synced too.
  Result<void> publish(unsigned mode) { return publish(mode, false); }
  /// The same by another name in the same directory. It never has two, for who mounts only what has one; where such a
  /// name can only be given by taking a place (NFS), a file that gets it at the same moment is replaced.
  Result<void> publish_as(const std::string& path, unsigned mode);
  /// The same, taking the place of a file that has the name. That one is whole until it is replaced.
  Result<void> publish_over(unsigned mode);
  /// Takes the place of a file of that name, and syncs nothing: for what can be made again and is checked when read.
  Result<void> replace(unsigned mode);
  /// The same by another name in the same directory.
  Result<void> replace_as(const std::string& path, unsigned mode);

 private:
  OutputFile(std::string path, UniqueFd directory, UniqueFd fd, std::string part)
      : path_(std::move(path)), directory_(std::move(directory)), fd_(std::move(fd)), part_(std::move(part)) {}
  Result<void> publish(unsigned mode, bool only_one_name);
  [[nodiscard]] int link(const std::string& name, bool only_one = false);
  [[nodiscard]] Result<void> sync_name() const;
  void forget_part();

  std::string path_;
  UniqueFd directory_, fd_;
  std::string part_;  ///< temporary name in directory_, or empty
};

/// Where a file of that name would be written: through symbolic links in its place, as enroot's `readlink -f` has it,
/// whether or not something is there. The path itself in a loop of links, and where a link is another user's in a
/// directory like /tmp.
std::string followed(const std::string& path);

/// From here on SIGINT, SIGTERM and SIGHUP, where they would end this process, take the parts with them that it is
/// writing: a user who interrupts a command finds nothing of it. For programs of his own, once.
void remove_parts_when_interrupted();

/// The mode of a new file as open(2) would give it.
unsigned less_umask(unsigned mode);
/// Directory and last component of a path; "x" is {".", "x"}.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace situla
