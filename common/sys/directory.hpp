// Which names are in a directory?
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dirent.h>

#include "common/base/result.hpp"

namespace situla {

struct CloseDir {
  void operator()(DIR* directory) const { closedir(directory); }
};
/// As of fdopendir(3); closed with it.
using DirStream = std::unique_ptr<DIR, CloseDir>;

/// All names but "." and "..", in no order. The error names the path.
Result<std::vector<std::string>> list_directory(const std::string& path);
/// The same of an open directory; `operand` names it in errors.
Result<std::vector<std::string>> list_directory(int directory_fd, const std::string& operand);

/// Asks the file system once for names from the directory's beginning, as many as it gives at a time, and drops them:
/// of what a file system of FUSE lists, the kernel may get to know more than the names. Nothing depends on it. The
/// descriptor is open for reading.
void ask_for_names(int directory_fd);

/// Names that end in `suffix`, without hidden ones, in the order of a shell's glob; none where there is no directory.
Result<std::vector<std::string>> names_with_suffix(const std::string& path, std::string_view suffix);

/// Bytes on disk of a file, or of a directory and all that is in it, as du(1) counts them; of what cannot be looked at,
/// nothing.
uint64_t disk_usage(const std::string& path);

}  // namespace situla
