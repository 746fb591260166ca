// How are single files, links and directories of a container changed?
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// A change to the container's files. Parents are created.
struct FileChange {
  enum class Kind {
    write,     ///< a regular file with this content replaces whatever is there, in one moment; links are not followed
    link,      ///< a symbolic link with this content does
    directory  ///< made unless it is there
  };
  Kind kind = Kind::write;
  std::string path;     ///< inside the container
  std::string content;  ///< write: bytes; link: target
  mode_t mode = 0644;
};

/// Makes the proposed file changes in the root. A file that the site or image mounted there stays, with a warning.
Result<void> apply_file_changes(const std::vector<FileChange>& changes, const RootDir& root, LogSink& log);

}  // namespace situla
