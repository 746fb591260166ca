// How does a bundle become a running container? As `situla start` does it, with the image inside the bundle.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/environment.hpp"
#include "hooks/bundle/bundle_files.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/containers/scratch.hpp"

namespace situla::bundle {

/// What a bundle was told to do: the words after its name, as enroot's bundles have them.
struct Options {
  bool help = false, information = false, verify = false;
  bool keep = false;     ///< extract to the target directory and run there
  bool extract = false;  ///< extract there and end
  bool quiet = false;
  StartOptions start;
  std::vector<std::string> command;
};

Result<Options> parse(const std::vector<std::string>& words);
std::string usage(const std::string& program, const std::string& description);

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

}  // namespace situla::bundle
