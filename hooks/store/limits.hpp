// How much may imports take: of one user at a time, and of the disk?
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// One of a user's imports in flight on this node. Held by a lock, so that a crash frees it; the file goes with it.
class ImportSlot {
 public:
  /// `waiting` is called once, before the first wait; `done` before each further one: true ends the waiting with
  /// nullopt. count: of slots; 0: no limit.
  static Result<std::optional<ImportSlot>> acquire(const std::string& directory, uid_t uid, uint32_t count,
                                                   const std::function<void()>& waiting,
                                                   const std::function<bool()>& done);
  ImportSlot(ImportSlot&&) noexcept = default;
  ImportSlot& operator=(ImportSlot&&) = delete;
  ~ImportSlot();

 private:
  ImportSlot(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

/// Removes what imports that were killed left there.
void sweep_free_slots(const std::string& directory);

/// What the store leaves free of its file system.
struct StoreReserve {
  /// Of a file system whose administrator named none: a twentieth, and at most this.
  static constexpr uint64_t kMostByDefault = uint64_t{2} << 30U;
  std::optional<uint64_t> bytes;

  /// ErrorKind::no_space with both numbers when less than that is free. `store` names it in the error.
  [[nodiscard]] Result<void> check(const std::string& store) const;
};

}  // namespace situla
