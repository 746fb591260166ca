// What does an environment (--environment) come to, with the files that it is based on?
#pragma once

#include <string>
#include <vector>

#include "common/spec/resolved_environment.hpp"
#include "hooks/edf/edf_file.hpp"
#include "hooks/edf/edf_search.hpp"

namespace situla::edf {

/// Combined, its references replaced but for those of `env`, which are the node's and the image's affair.
struct Edf {
  std::string name;                ///< as it was given
  std::vector<std::string> files;  ///< in the order in which they were put on top of each other
  EdfFile combined;
  std::vector<std::string> warnings;
};

/// Errors begin with "FILE:LINE: " where a line of a file is wrong. A circle of base_environment names all its files.
Result<Edf> load_edf(const std::string& name, const EdfPlaces& places);

/// Everything that is wrong with a file, and with those that it is based on. Empty: nothing.
std::vector<Error> check_edf(const std::string& name, const EdfPlaces& places);

/// For the plugin and for `situla run`.
ResolvedEnvironment options_of(const Edf& edf);

}  // namespace situla::edf
