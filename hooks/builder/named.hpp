// Which container does --container-name mean on this node? Does it run, does it exist, or has it to be made? COMPAT.md
// section 1.
#pragma once

#include <functional>
#include <optional>

#include "hooks/builder/input.hpp"
#include "hooks/containers/request.hpp"

namespace situla {

/// Found before the namespaces are made: paths of the host still mean something, and the user is still himself.
struct StepRoot {
  RootSource source;
  UniqueFd directory;                   ///< of a named container, O_PATH
  std::string identity;                 ///< of a named container (container_identity.hpp); may be empty
  UniqueFd save_directory, save_image;  ///< what --container-save exports, as far as it is known by now

  /// In the container's namespaces: the directory of a named container to which only somebody of its range has access.
  Result<void> open_save_directory();
};

/// Runs as the user on the host, in the asking task's directory. Joins what runs, if the user's flag allows it: then it
/// returns nullopt, and the tasks have what they need already. Else the container exists when it returns: a new one is
/// made whole or not at all, and only after everything else that can be wrong was found right. usage, exists, not_found
/// or what importing, creating and asking the broker say.
///
/// get_images: fetches what else the container needs, once, when it is not one that runs. True: that may have taken
/// long, and it is looked for again.
Result<std::optional<StepRoot>> find_or_make_container(const BuilderData& data, const EnrootConfig& config,
                                                       const std::function<Result<bool>()>& get_images, LogSink& log);

}  // namespace situla
