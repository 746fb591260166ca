// Where is a plan applied?
#pragma once

#include <string>

#include "common/sys/root_dir.hpp"

namespace situla {

struct ApplyTarget {
  const RootDir& root;    ///< the container's root, a mount of this mount namespace, in which the caller is root
  std::string root_path;  ///< where it is: ENROOT_ROOTFS. Sources beneath it are resolved inside the root
  std::string working_directory = "/";  ///< relative sources are meant from here
};

}  // namespace situla
