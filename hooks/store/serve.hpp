// What does the store do for one import? It computes where the image comes from, answers the importer's questions, and
// gives what was written its name.
#pragma once

#include <functional>
#include <string>

#include <sys/types.h>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/request/request.hpp"
#include "hooks/store/image_store.hpp"
#include "hooks/turn/lease.hpp"

namespace situla {

struct StoreJob {
  std::string store;             ///< absolute path
  std::string variant;           ///< of the image: "" or "lz4"
  uid_t uid = 0;                 ///< for whom
  std::string job;               ///< "123.0": for those who wait, and for what the steps of a job have in common
  uint32_t node = 0, nodes = 1;  ///< of the step
};

/// The other ends. None of them is closed here.
struct StoreLines {
  int broker = -1;    ///< gets Notes; its closing cancels
  int importer = -1;  ///< store_line messages
  int courier = -1;   ///< courier_line messages; -1: the nodes of the step share nothing
};

struct ServedImage {
  ImageKey key;
  UniqueFd file;          ///< for reading
  bool stored = false;    ///< it was here, or another node had it
  bool received = false;  ///< another node had it
};

/// What is told of one import. None of it is called after an error.
struct StoreEvents {
  /// There has to be an importer at the other end of StoreLines::importer. Its pidfd; -1: this kernel has none, and
  /// only the lease (F_SETLEASE) tells whether it has ended. Called at most once.
  std::function<Result<UniqueFd>()> start_importer;
  /// The image is not here: it is imported now.
  std::function<void()> importing;
  /// It is not imported yet: what is waited for, as of TurnEvents.
  std::function<void(const std::string& what)> waiting;
  /// Here it is. goes_on: there is more to do afterwards, while the step runs.
  std::function<Result<void>(const ServedImage& image, bool goes_on)> served;
};

/// Until the image is there, and the registry has been asked again. The request's rules are those of the node. An error
/// with ErrorKind::cancelled and no text: the importer ended by itself, and has told the broker why.
Result<void> serve_import(const StoreJob& job, const ImportRequest& request, const SiteConfig& config,
                          const StoreLines& lines, const StoreEvents& events, LogSink& log,
                          const Lease::Options& patience = {});

}  // namespace situla
