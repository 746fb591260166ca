// How shall a squashfs file be extracted?
#pragma once

#include <cstddef>

#include "common/base/log.hpp"

namespace situla {

struct ExtractOptions {
  LogSink* log = nullptr;    ///< what could not be kept (device nodes, attributes); one message per kind. Not owned.
  bool keep_set_id = false;  ///< the tree belongs to the caller, so a set-id file would lend out the caller's rights
  size_t threads = 0;        ///< 0: one per processor; more than 16 are of no use
};

}  // namespace situla
