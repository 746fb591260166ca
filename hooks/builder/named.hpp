// Which container does --container-name mean on this node? Does it run, does it exist, or has it to be made? COMPAT.md
// section 1.
#pragma once

#include <optional>

#include "hooks/builder/input.hpp"
#include "hooks/run/enroot_config.hpp"
#include "hooks/run/prepare.hpp"

namespace situla {

struct NamedRoot {
  RootSource source;                    ///< a tree or layers
  UniqueFd directory;                   ///< of the container, O_PATH
  std::string identity;                 ///< of the container (container_identity.hpp); may be empty
  UniqueFd save_directory, save_image;  ///< what --container-save exports, opened while paths of the host can be
};

/// Runs as the user on the host, in the asking task's directory. Joins what runs, if the user's flag allows it: then it
/// returns nullopt, and the tasks have what they need already. Else the container exists when it returns: a new one is
/// made whole or not at all, and only after everything else that can be wrong was found right. usage, exists, not_found
/// or what importing, creating and asking the broker say.
Result<std::optional<NamedRoot>> find_or_make_container(const BuilderData& data, const EnrootConfig& config,
                                                        LogSink& log);

}  // namespace situla
