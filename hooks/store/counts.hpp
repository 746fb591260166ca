// How often did this node's store have what a step asked for, and what did that spare?
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

#include "common/base/result.hpp"

namespace situla {

/// Since the store was made. Of one node, also where several nodes share the store.
struct StoreCounts {
  uint64_t hits = 0;           ///< steps whose image was there
  uint64_t misses = 0;         ///< steps for which it was imported
  uint64_t failures = 0;       ///< steps that got none, cancelled ones left out
  uint64_t waits = 0;          ///< steps that waited for somebody else's import
  uint64_t offline = 0;        ///< steps that got what their user had before, because the registry did not answer
  uint64_t saved_bytes = 0;    ///< of layers that hits did not fetch
  uint64_t fetched_bytes = 0;  ///< of layers that misses fetched
  uint64_t removed = 0;        ///< images, for room, for their age or by command
  uint64_t removed_bytes = 0;
  uint64_t local = 0;  ///< steps that got a copy on this node's disk

  static auto fields(auto& it) {
    return std::tie(it.hits, it.misses, it.failures, it.waits, it.offline, it.saved_bytes, it.fetched_bytes, it.removed,
                    it.removed_bytes, it.local);
  }
};

/// Adds to the counts of this node, in `<store>/counts/<host name>`.
Result<void> add_counts(const std::string& store, const StoreCounts& change);
/// Nothing counted: zeros.
StoreCounts read_counts(const std::string& store);

}  // namespace situla
