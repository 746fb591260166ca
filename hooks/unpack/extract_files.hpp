// How are the files of an image written by several threads at once? Each reads, decompresses and writes with a reader
// of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/unpack/image_access.hpp"
#include "hooks/unpack/image_owners.hpp"

namespace situla {

/// What could not be kept, said once per reason with the first path as the example. For any thread.
class ExtractNotes {
 public:
  explicit ExtractNotes(LogSink* log) : log_(log) {}
  void add(const std::string& what, const std::string& path);

 private:
  LogSink* log_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

/// Attributes of a file or directory, as far as they can be kept.
Result<void> extract_attributes(ImageAccess& image, int fd, const std::string& path, const StoredInode& node,
                                ExtractNotes& notes);
/// How files are finished.
struct FinishRules {
  bool keep_set_id = false;
  const ImageOwners* owners = nullptr;  ///< null: they are the caller's own
};
/// The owner. Before attributes and mode: a change of it takes capabilities and set-id bits away.
Result<void> give_away(int fd, const StoredInode& node, const FinishRules& rules);
/// Mode and time, which come last.
Result<void> finish_extracted(int fd, const StoredInode& node, const FinishRules& rules);

class FileWriters {
 public:
  /// image: used by add() and finish() where there is one thread only. threads: 0: one per processor.
  FileWriters(ImageAccess& image, size_t threads, const FinishRules& rules, ExtractNotes& notes);
  FileWriters(const FileWriters&) = delete;
  FileWriters& operator=(const FileWriters&) = delete;
  ~FileWriters();

  /// Fills a file that was just created. Returns soon: at most kMaxWaiting files are open and unfinished. The error may
  /// be that of another file.
  Result<void> add(UniqueFd fd, std::string path, const StoredInode& node);
  /// Everything is written, and the threads are gone.
  Result<void> finish();

 private:
  /// A file, and how much of it is still to be done.
  struct File {
    UniqueFd fd;
    std::string path;
    StoredInode node;
    std::atomic<size_t> parts_left{1};
    std::atomic<uint64_t> end{0};  ///< behind the last byte that was written
  };
  /// Bytes of one file, from one offset to another.
  struct Part {
    std::shared_ptr<File> file;
    uint64_t begin = 0, end = 0;
  };
  using Batch = std::vector<Part>;

  void split(const std::shared_ptr<File>& file);
  [[nodiscard]] bool batch_is_full(const StoredInode& next) const;
  Result<void> hand_over();
  void work();
  Result<void> write_batch(ImageAccess& image, const Batch& batch);
  Result<void> write_part(ImageAccess& image, const Part& part);
  void fail_with(Error error);
  Result<void> error();
  void stop(bool at_once);

  ImageAccess& image_;
  const FinishRules rules_;
  ExtractNotes& notes_;

  Batch batch_;  ///< being collected
  size_t batch_files_ = 0;
  uint64_t batch_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable more_, less_;
  std::deque<Batch> waiting_;
  size_t files_open_ = 0;
  bool ending_ = false;
  std::optional<Error> error_;
  size_t threads_before_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace situla
