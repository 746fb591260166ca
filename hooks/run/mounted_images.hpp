// Which images of registries do the mounts of a container name? They are fetched before it is begun.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/mount_option.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

struct WantedImage {
  std::string reference;                     ///< as the mount has it, "docker://..."
  OnFailure on_failure = OnFailure::ignore;  ///< the strictest of its mounts'

  [[nodiscard]] bool optional() const { return on_failure != OnFailure::fail; }
  /// It is optional, and cannot be had.
  void say_missing(const std::string& why, LogSink& log) const;
};

/// Each image once, of the site's and the user's fstab files and of options as of ContainerSpec and StartOptions. What
/// the image of the container says in its own /etc/fstab does not count: it is nobody who may fetch something in the
/// user's name. ErrorKind::usage for what is no reference.
Result<std::vector<WantedImage>> wanted_images(const EnrootConfig& config, const Environment& host,
                                               const std::vector<MountOption>& options,
                                               const std::vector<std::string>& arguments);

/// Steps of such images get to know where theirs are. Others stay without, and applying them is an error.
void place_images(std::vector<MountStep>& steps, const ImagePlaces& places);

}  // namespace situla
