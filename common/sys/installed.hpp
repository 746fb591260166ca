// Where are the files that belong to this program? Beside it (build tree), in ../libexec/situla, or where it was
// configured to be installed.
#pragma once

#include <string>

#include "common/base/result.hpp"

namespace situla {

/// Path of an installed file by its name beneath Situla's program directory ("situla-printenv"). ErrorKind::not_found
/// with a hint.
Result<std::string> find_installed(const std::string& name);

}  // namespace situla
