#include "common/protocol/namespace_fds.hpp"

#include <iterator>

namespace situla {

std::vector<int> NamespaceFds::numbers() const {
  std::vector<int> result = {user.get(), mount.get(), cgroup.get()};
  for (const UniqueFd& fd : others) result.push_back(fd.get());
  return result;
}

Result<NamespaceFds> NamespaceFds::take(const Isolation& isolation, std::vector<UniqueFd>& fds) {
  constexpr std::ptrdiff_t kAlways = 3;
  const std::ptrdiff_t wanted = kAlways + isolation.ipc + isolation.uts + isolation.net + isolation.pid;
  if (std::ssize(fds) < wanted) return fail(ErrorKind::corrupt, "a container came without its namespaces");
  NamespaceFds taken{std::move(fds[0]), std::move(fds[1]), std::move(fds[2]), isolation, {}};
  const auto end = fds.begin() + wanted;
  taken.others.assign(std::make_move_iterator(fds.begin() + kAlways), std::make_move_iterator(end));
  fds.erase(fds.begin(), end);
  return taken;
}

}  // namespace situla
