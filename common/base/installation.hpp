// Where do this build's files go? In one object file, so that a build for another place compiles one file.
#pragma once

#include <string>

namespace situla {

/// Absolute path of what is installed as NAME beside the broker, builder and importer (CMake: SITULA_LIBEXEC_DIR).
std::string libexec_path(const std::string& name);
/// Absolute path of that directory.
const char* libexec_directory();
/// Absolute path of the program `situla`.
const char* program_path();
/// Absolute path of the SPANK plugin.
const char* plugin_path();

}  // namespace situla
