// What do conf/mounts.d and conf/environ.d hold? The same bytes, compiled in; the files are the one source (see
// CMakeLists.txt).
#pragma once

#include <string_view>

namespace situla::builtin {

extern const std::string_view kSystemFstab;
extern const std::string_view kConfigFstab;
extern const std::string_view kTerminalEnvironment;

}  // namespace situla::builtin
