// When may this step import its image? One at a time imports the same image, on all nodes that share the store, and not
// too many of one user on this node.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/turn/lease.hpp"
#include "hooks/turn/limits.hpp"

namespace situla {

/// Held until the image has its name.
struct ImportTurn {
  std::optional<Lease> lease;      ///< none: `done` or `stops` has ended the waiting
  std::optional<ImportSlot> slot;  ///< none: the same
  bool waited = false;             ///< for another import of the same image

  void report(LeaseRecord::State state, uint64_t bytes) {
    if (lease) lease->report(state, bytes);
  }
  /// So much has the file, and so much have those of others.
  ImportSlot::InFlight report_size(uint64_t bytes) const {
    if (!slot) return {};
    slot->report(bytes);
    return slot->others();
  }
};

struct TurnTaker {
  uid_t uid = 0;
  std::string job;                ///< "123.0"
  uint32_t imports_per_user = 0;  ///< 0: no limit
};

/// While it waits.
struct TurnEvents {
  /// For what, again for each new holder, and now and then; what the log is told as well.
  std::function<void(const std::string& what)> waiting;
  /// Whether the image is there, or nobody wants it any more: asked now and then, as it may take the file system some
  /// time; true ends the waiting.
  std::function<bool()> done;
  /// Asked ten times a second while another import is waited for; true ends the waiting. May be empty.
  std::function<bool()> stops;
};

/// Waits, and says so. lease: the path of the image's; slots: the directory of those of this store.
Result<ImportTurn> take_turn(const std::string& lease, const std::string& slots, const TurnTaker& who,
                             const Lease::Options& patience, LogSink& log, const TurnEvents& events);

}  // namespace situla
