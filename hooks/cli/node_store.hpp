// How does a process of a user get something from the node's store? It asks at the store's socket, if there is one.
#pragma once

#include <optional>

#include "hooks/import/finished_images.hpp"

namespace situla::cli {

/// Copies of images that this user has been let have by `srun` (hooks/store/answer.hpp).
class NodeStore final : public FinishedImages {
 public:
  [[nodiscard]] std::optional<Copy> copy(const ImportRequest& request, bool offline, int fd,
                                         Progress& progress) override;
};

}  // namespace situla::cli
