// How does a bundle become a running container? As `situla start` does it, with the image inside the bundle.
#pragma once

#include <string>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/environment.hpp"
#include "hooks/bundle/bundle_files.hpp"
#include "hooks/bundle/start/options.hpp"
#include "hooks/containers/scratch.hpp"

namespace situla::bundle {

struct Bundle {
  std::string path;
  UniqueFd file;
  BundleFiles files;
  std::string target;  ///< directory of --keep and --extract
};

/// A directory of this program's own, beside its file, which moves there; removed by a child when the container ends,
/// however. Also removes what starts that were killed in their first moments have left.
Result<Scratch> make_home();

Result<Bundle> open_bundle(const std::string& path, const Environment& environment);

/// Extracts the image to the target directory, which appears when it is whole. ErrorKind::exists when it is there.
Result<void> extract_bundle(const Bundle& bundle, LogSink& log);

/// This process becomes the container's command, so it returns on failure only. home: gets the bundle's configuration.
Result<int> start_bundle(Bundle bundle, const Scratch& home, const Options& options, Environment environment,
                         LogSink& log);

/// What this machine can do, one line each; false when it cannot run the bundle.
bool verify_machine(std::string& report);

}  // namespace situla::bundle
