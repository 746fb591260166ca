#include "common/base/installation.hpp"

namespace situla {

std::string libexec_path(const std::string& name) {
  return SITULA_LIBEXEC_DIR "/" + name;
}

const char* libexec_directory() {
  return SITULA_LIBEXEC_DIR;
}

const char* program_path() {
  return SITULA_PROGRAM;
}

const char* plugin_path() {
  return SITULA_PLUGIN_PATH;
}

}  // namespace situla
