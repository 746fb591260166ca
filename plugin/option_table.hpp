// Which options does the plugin add to srun, sbatch and salloc, and what does each of them do? COMPAT.md section 1.
#pragma once

#include <span>
#include <string_view>

#include "common/base/result.hpp"
#include "common/spec/container_spec.hpp"

namespace situla {

/// All there is to say of an option, but for its manual page. Strings are literals: Slurm keeps the pointers.
struct OptionInfo {
  const char* name;      ///< without the leading dashes
  const char* argument;  ///< placeholder in --help; nullptr: the option takes none
  const char* usage;
  /// Checks a value, which is empty where the option takes none, and puts it into the specification.
  Result<void> (*apply)(std::string_view value, ContainerSpec& spec);
  /// SITULA_CONTAINER_X and PYXIS_CONTAINER_X are its default; of an option without a value a "no" is its opposite.
  const char* variable = nullptr;
  const char* opposite = nullptr;  ///< the option that cannot be given beside it
  /// It may be given several times, and adds up: the variable in which srun, sbatch and salloc hand on the sum.
  /// --export=NONE leaves variables out, but not those that begin with SLURM_.
  const char* sum = nullptr;
};

/// In the order of --help. An option's place in it is its number.
std::span<const OptionInfo> option_table();
/// By its name; nullptr: there is none.
const OptionInfo* find_option(std::string_view name);
/// nullptr: it has none.
const OptionInfo* opposite_of(const OptionInfo& option);

}  // namespace situla
