// What was a bundle told to do? The words after its name, as enroot's bundles have them.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/containers/request.hpp"

namespace situla::bundle {

struct Options {
  bool help = false, information = false, verify = false;
  bool keep = false;     ///< extract to the target directory and run there
  bool extract = false;  ///< extract there and end
  bool quiet = false;
  StartOptions start;
  std::vector<std::string> command;
};

Result<Options> parse(const std::vector<std::string>& words);
std::string usage(const std::string& program, const std::string& description);

}  // namespace situla::bundle
