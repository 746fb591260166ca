#include "common/protocol/messages.hpp"

#include <iterator>

#include "common/base/wire.hpp"

namespace situla {
namespace {

// Changes with every change of a message: the plugin and the programs it starts may be upgraded while a job runs.
constexpr uint32_t kVersion = 0x53490014;
constexpr WireForm kMessage{"message", kVersion, kMaxMessageBytes, kMaxTextBytes};
constexpr WireForm kStepRequest{"step request", kVersion, size_t{16} << 20U};

}  // namespace

bool is_same(const StepToken& one, const StepToken& other) {
  unsigned difference = 0;
  for (size_t i = 0; i < one.size(); ++i) difference |= static_cast<unsigned>(one.at(i) ^ other.at(i));
  return difference == 0;
}

std::string encode(const Message& message) {
  return to_wire(message, kMessage);
}

Result<Message> decode(std::string_view bytes) {
  return from_wire<Message>(bytes, kMessage);
}

std::string encode_step_request(const StepRequest& request) {
  return to_wire(request, kStepRequest);
}

Result<StepRequest> decode_step_request(std::string_view bytes) {
  return from_wire<StepRequest>(bytes, kStepRequest);
}

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
