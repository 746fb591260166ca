#include "plugin/broker/builder.hpp"

#include <csignal>

#include <poll.h>

#include "plugin/broker/after_job.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/heard.hpp"

namespace situla {

/// What it had said of its scratch directory, if it was killed before that was read.
void Builder::drain_messages() {
  pollfd more{helper.socket.get(), POLLIN, 0};
  while (poll(&more, 1, 0) == 1 && (more.revents & POLLIN) != 0) {
    const auto message = hear(helper.socket.get());
    if (!message || !*message) return;
    if (const auto* place = std::get_if<ScratchPlace>(&**message)) scratch_path = place->path;
  }
}

void Builder::end(const Step& step, const TaskPlace& place, bool orderly, bool ready) {
  if (orderly && stays) (void)tell(helper.socket.get(), Finish{});
  // One that stays takes the end of the connection for the end of its work.
  if (stays)
    helper.socket.reset();
  else
    (void)helper.process.signal(SIGKILL);
  const auto status = helper.process.wait_for(kEndLimit);
  if (!stays) drain_messages();
  helper = Helper{};
  const bool ended_itself = status && *status && (*status)->signal == 0;
  if (step.request.named && !ready && !ended_itself)
    if (auto sweeper = start_unfinished_sweeper(step, place)) (void)sweeper->process.wait_for(kEndLimit);
  // One that failed before there was a container has removed what it had made, and another node may have the name now.
  const bool cleaned_up = ended_itself && (!ready || (*status)->success());
  if (!scratch_path.empty() && !cleaned_up)
    if (auto cleaner = start_cleaner(step.launcher, step.user, scratch_path)) (void)cleaner->wait_for(kEndLimit);
  forget_scratch(step);
}

}  // namespace situla
