// Who has an image finished already, and may give this user a copy?
#pragma once

#include <cstdint>
#include <optional>

#include "common/spec/digest.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/request/request.hpp"

namespace situla {

/// The node's store, for imports that users make themselves.
class FinishedImages {
 public:
  virtual ~FinishedImages() = default;

  struct Copy {
    Digest manifest;
    uint64_t age = 0;  ///< seconds since the registry let the user have it
  };
  /// The image becomes the content of the empty file `fd`, which is as our importer writes it without anybody's
  /// wishes. request: with the digest of a manifest; offline: what a tag meant last is enough, the registry does not
  /// answer. nullopt: there is none for this user, or progress says cancelled(); the file is empty.
  [[nodiscard]] virtual std::optional<Copy> copy(const ImportRequest& request, bool offline, int fd,
                                                 Progress& progress) = 0;
};

}  // namespace situla
