// What do the values of an environment file mean as options of srun?
#pragma once

#include <string>
#include <vector>

#include "hooks/edf/edf_file.hpp"
#include "hooks/edf/edf_search.hpp"

namespace situla::edf {

/// Replaces references and relative paths, and checks every value. A device that is a path becomes a mount.
Result<void> settle_values(EdfFile& file, const EdfPlaces& places);

/// What of the annotations and of foreign keys nobody does: a line for each hook.
std::vector<std::string> unheeded(const EdfFile& file);

}  // namespace situla::edf
