// Which step of a job does a name mean? "12.0", as Slurm writes it; on disk "pyxis_12.0". COMPAT.md sections 1 and 10.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace situla {

// slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP.
constexpr uint32_t kBatchStep = 0xfffffffb, kInteractiveStep = 0xfffffffa;
/// No step: what a job's prolog begins. The number is that of SLURM_EXTERN_CONT, a step which never has a container.
constexpr uint32_t kPrologStep = 0xfffffffc;

struct StepName {
  uint32_t job = 0;
  uint32_t step = 0;

  [[nodiscard]] std::string text() const;     ///< "12.0"
  [[nodiscard]] std::string scratch() const;  ///< "pyxis_12.0": of what its unnamed container keeps on disk
};

/// "12.0", and "12.batch" and "12.interactive" as squeue(1) prints them. Numbers as Slurm writes them: "24.03" is a
/// version, not a step.
std::optional<StepName> parse_step_name(std::string_view text);
/// "pyxis_12.0", also with the random ending that it has when the name was taken.
std::optional<StepName> step_of_scratch(std::string_view directory);

}  // namespace situla
