// Where does the dynamic linker of an image look for libraries, and how is that changed for good? glibc's
// /etc/ld.so.conf with what it includes, musl's path file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

enum class Linker { glibc, musl };
/// Those that the image has, for the machine's own processor. An image with neither counts as one of glibc.
std::vector<Linker> linkers_of(const RootDir& root);

/// glibc looks there without being told; the directories of all distributions.
bool is_searched_by_default(std::string_view directory);

/// The directories of /etc/ld.so.conf in their order, each once; not those that we wrote earlier.
std::vector<std::string> configured_directories(const RootDir& root);

/// Tells a later ldconfig in the container of directories, in files of our own: `preferred` before all others.
/// What we wrote earlier and is not true any more is taken back.
Result<void> configure_directories(const RootDir& root, const std::vector<std::string>& preferred,
                                   const std::vector<std::string>& directories);
/// The preferred ones of an earlier call.
std::vector<std::string> earlier_preferred(const RootDir& root);

/// What musl's path file has to say; nullopt where it says so already. `path` is set to the file.
std::optional<std::string> musl_path(const RootDir& root, const std::vector<std::string>& preferred,
                                     const std::vector<std::string>& directories, std::string& path);

}  // namespace situla
