// Which of the node's libraries of the network fabric does a container use in place of its image's own? As
// fabric = [...] in situla.toml says, and as far as they fit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/edits.hpp"
#include "hooks/inject/edits/host_roots.hpp"

namespace situla::fabric {

struct Scene {
  const HostRoots& roots;         ///< driver: where the node's libraries are
  const RootDir& root;            ///< the container's
  std::string_view library_path;  ///< the container's LD_LIBRARY_PATH
  LogSink& log;
};

/// Files of the host over those of the image, or beside them, for each part as a whole: where one library does not fit,
/// the image's own of that part stay. That is a warning where the image has one of its libraries, a line for the log
/// where it has none, and for debugging where the node has none. Modules (UCX, libfabric) come as the directory beside
/// the library; one whose needs do not fit is a line in the node's log. Nodes /dev/cxi* that this process may open come
/// with cxi. No mount that fails ends a start. An image without glibc is left alone.
Result<ContainerEdits> edits(const std::vector<Fabric>& parts, const Scene& scene);

/// SONAMEs, one for each of the parts of which the node has nothing.
std::vector<std::string> missing_libraries(const std::vector<Fabric>& parts, const RootDir& node);

}  // namespace situla::fabric
