// What happened to a step's container on a node? What the broker leaves for the step's user, and `situla explain` and
// `situla status` read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace situla {

/// In the order in which a step goes through them. None of them is within another.
enum class StepPhase : uint8_t {
  import,   ///< the registry is asked, the image fetched and written, or found in the store
  wait,     ///< for somebody else's import
  mount,    ///< of the image, by the kernel
  prepare,  ///< the container: its namespaces and mounts
  hooks,    ///< of that what hooks take, as the builder says, which is the user's process
  scripts,  ///< and the image's login shell and /etc/rc
  tasks,    ///< from the first one's start to the last one's end
  save,     ///< --container-save
};
constexpr std::array<std::string_view, 8> kStepPhases = {"import", "wait",    "mount", "prepare",
                                                         "hooks",  "scripts", "tasks", "save"};
constexpr std::string_view to_string(StepPhase phase) {
  return kStepPhases.at(static_cast<size_t>(phase));
}

/// Times are milliseconds, points in time those since the epoch.
struct StepRecord {
  struct Phase {
    StepPhase phase = StepPhase::import;
    uint64_t begin = 0;
    std::optional<uint64_t> length;  ///< none: it goes on
  };
  /// How far the import is: compressed bytes of layers.
  struct Progress {
    uint64_t done = 0, total = 0, at = 0;
  };
  /// As the user was told.
  struct Failure {
    std::string code, text, hint;
  };

  uint32_t job = 0, step = 0;  ///< kBatchStep and its like included
  uint32_t uid = 0;
  std::string node;    ///< this host's name
  std::string image;   ///< as typed; empty: none
  bool named = false;  ///< --container-name
  uint32_t tasks = 0;  ///< on this node
  std::string digest;  ///< of the manifest; empty: not known
  std::string source;  ///< as in slurmd's log: "registry", "store", "file", ...
  std::string mount;   ///< likewise: "kernel", "fuse", "extracted", ...
  uint64_t bytes = 0;  ///< of the image's file; 0: not known
  std::vector<Phase> phases;
  std::optional<Progress> progress;
  std::string waits_for;  ///< while it waits
  std::optional<Failure> failure;
  std::optional<uint64_t> ended;
  bool lost = false;  ///< who writes it is gone without having said that the step has ended; a reader finds that out

  /// One line of JSON, without its end. Members that say nothing are left out. Nothing that it is made of makes it
  /// longer than kMostBytes: texts are cut.
  [[nodiscard]] std::string json() const;

  static constexpr size_t kMostBytes = size_t{32} << 10U;
  static constexpr size_t kMostText = 4000;  ///< bytes of each text
  static constexpr size_t kMostPhases = 32;
  static constexpr uint64_t kMostCount = uint64_t{1} << 53U;  ///< bytes; what all readers of JSON can count
  static constexpr uint32_t kVersion = 1;
};

/// The beginning of a text, at most so many bytes, and whole characters (UTF-8).
std::string_view first_bytes(std::string_view text, size_t most);

/// "12.0", "12.batch", "12.interactive"; "12.prolog" for what a job's prolog began.
std::string step_record_name(uint32_t job, uint32_t step);

}  // namespace situla
