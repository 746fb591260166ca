// How many imports of one user at a time, and how much do they write?
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// One of a user's imports in flight on this node. Held by a lock, so that a crash frees it; the file goes with it. It
/// says how much the import has written.
class ImportSlot {
 public:
  /// `waiting` is called once, before the first wait; `done` before each further one: true ends the waiting with
  /// nullopt. job: "123.0". count: of slots; 0: no limit.
  static Result<std::optional<ImportSlot>> acquire(const std::string& directory, uid_t uid, const std::string& job,
                                                   uint32_t count, const std::function<void()>& waiting,
                                                   const std::function<bool()>& done);
  /// So much has the file of this import.
  void report(uint64_t bytes) const;
  /// Bytes of files that other imports write now, on all nodes.
  struct InFlight {
    uint64_t of_user = 0;  ///< of this import's user
    uint64_t of_all = 0;
  };
  [[nodiscard]] InFlight others() const;

  ImportSlot(ImportSlot&&) noexcept = default;
  ImportSlot& operator=(ImportSlot&&) = delete;
  ~ImportSlot();

 private:
  static Result<ImportSlot> without_lock(const std::string& directory, const std::string& prefix, uid_t uid,
                                         const std::string& job);
  ImportSlot(std::string directory, std::string name, uid_t uid, std::string job, UniqueFd fd)
      : directory_(std::move(directory)), name_(std::move(name)), job_(std::move(job)), uid_(uid), fd_(std::move(fd)) {}
  std::string directory_, name_, job_;  ///< name: "<node>.<uid>.<number>"
  uid_t uid_;
  UniqueFd fd_;
};

/// Removes what imports that were killed left there. False: one is held for the step `ended` of this node, whose import
/// is on its way out. silent: only of those that have not reported for so long; while a slot is tried, nobody gets it.
bool sweep_free_slots(const std::string& directory, const std::string& ended = "", std::chrono::seconds silent = {});

}  // namespace situla
