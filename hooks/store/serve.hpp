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
#include "hooks/store/lease.hpp"

namespace situla {

struct StoreJob {
  std::string store;    ///< absolute path
  std::string variant;  ///< of the image: "" or "lz4"
  uid_t uid = 0;        ///< for whom
  std::string job;      ///< "123.0": for those who wait, and for what the steps of a job have in common
};

/// The other ends. None of them is closed here.
struct StoreLines {
  int broker = -1;    ///< gets Notes; its closing cancels
  int importer = -1;  ///< store_line messages
};

struct ServedImage {
  ImageKey key;
  UniqueFd file;  ///< for reading
  bool stored = false;
};

/// What is told of one import. None of it is called after an error.
struct StoreEvents {
  /// There has to be an importer at the other end of StoreLines::importer. Its pidfd; -1: this kernel has none, and
  /// only the lease (F_SETLEASE) tells whether it has ended. Called at most once.
  std::function<Result<UniqueFd>()> start_importer;
  /// The image is not here: it is imported now.
  std::function<void()> importing;
  /// Here it is. looks_again: the registry is asked afterwards, while the step runs, whether the name still means it.
  std::function<Result<void>(const ServedImage& image, bool looks_again)> served;
};

/// Until the image is there, and the registry has been asked again. The request's rules are those of the node. An error
/// with ErrorKind::cancelled and no text: the importer ended by itself, and has told the broker why.
Result<void> serve_import(const StoreJob& job, const ImportRequest& request, const SiteConfig& config,
                          const StoreLines& lines, const StoreEvents& events, LogSink& log,
                          const Lease::Options& patience = {});

/// For `situla verify`, after an import, while the step runs already and no longer than the broker's end of that
/// connection is open: with the processor time that nobody wants. This process has no other work from then on.
Result<void> note_content(const std::string& store, const std::string& name, int broker);

}  // namespace situla
