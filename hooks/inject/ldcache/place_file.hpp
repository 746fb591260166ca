// How does a file get new content in a root that may be read-only?
#pragma once

#include <string_view>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/root_dir.hpp"

namespace situla {

/// Replaces or creates the file (mode 0644); a link there is replaced, not followed. Where the root cannot be written,
/// a file with the content is mounted over the one that is there. Where there is none either, or something that is no
/// file: a warning, and success.
Result<void> place_file(const RootDir& root, std::string_view path, std::string_view content, LogSink& log);

}  // namespace situla
