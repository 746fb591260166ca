// How does a user's step get a registry's image on a node without an image store? From his own store, by the rules of a
// node's: what was granted, one import at a time, quota, layers.
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/request/request.hpp"

namespace situla {

/// As the user, with the descriptors of a builder: one process is the store program, and forks an importer when there
/// is something to import. The image goes into the parcel (builder_fd::kOutput), and ImportDone to the broker; as long
/// as the broker keeps the connection, what is left to do is done beside the step. job: "123.0". The process has no
/// other threads. An error without a text: the importer has told the broker why.
Result<void> import_into_own_store(const ImportRequest& request, const EnrootConfig& config, const std::string& job,
                                   LogSink& log);

}  // namespace situla
