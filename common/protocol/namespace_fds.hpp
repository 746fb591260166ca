// Which namespaces does a container have, and in what order do they travel?
#pragma once

#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"

namespace situla {

/// All tasks join them; the last close frees them.
struct NamespaceFds {
  UniqueFd user, mount, cgroup;
  Isolation isolation;
  std::vector<UniqueFd> others;  ///< those of `isolation`, in the order ipc, uts, net, pid

  /// As they are sent with a JoinReply.
  [[nodiscard]] std::vector<int> numbers() const;
  /// From the descriptors that came with a JoinReply: taken out of the front of `fds`. corrupt when there are not
  /// enough.
  static Result<NamespaceFds> take(const Isolation& isolation, std::vector<UniqueFd>& fds);
};

}  // namespace situla
