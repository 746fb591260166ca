// How does a process of a user get an image that srun had before? It asks the node's store at its socket; where nobody
// listens, the user's own store, by a process of his.
#pragma once

#include <optional>

#include "hooks/cli/commands.hpp"
#include "hooks/import/finished_images.hpp"

namespace situla::cli {

/// Copies of images that this user has been let have by `srun` (hooks/store/answer.hpp).
class NodeStore final : public FinishedImages {
 public:
  /// The context outlives this.
  explicit NodeStore(const Context& context) : context_(context) {}
  [[nodiscard]] std::optional<Copy> copy(const ImportRequest& request, bool offline, int fd,
                                         Progress& progress) override;

 private:
  const Context& context_;
};

}  // namespace situla::cli
