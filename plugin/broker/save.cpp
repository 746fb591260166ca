#include "plugin/broker/save.hpp"

#include <array>
#include <cerrno>

#include <poll.h>

#include "common/protocol/contract.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/node/id_ranges.hpp"

namespace situla {

/// As the job user in the asking task's place: writes a squashfs file of what the builder gave.
Result<Helper> ContainerSave::start_saver(const Step& step, const TaskPlace& place) const {
  TRY_ASSIGN(CgroupPlace cgroup, step.launcher.cgroups.step());
  Launch what = in_task_place(step, place, Program::saver, {}, std::move(cgroup));
  what.fds.emplace_back(files_.get(), saver_fd::kFiles);
  if (image_) what.fds.emplace_back(image_.get(), saver_fd::kImage);
  if (has_range_ && !(what.id_maps = helper_maps(step.user, step.config.id_ranges)))
    return fail(
        Error(ErrorKind::denied, "--container-save: the container has a range of ids that is not the user's any more")
            .with_code(ErrorCode::namespaces)
            .with_hint("the node's log may say why; /etc/subuid and /etc/subgid may have changed"));
  return step.launcher.launch_helper(std::move(what), builder_fd::kBroker);
}

void ContainerSave::say(Note note, bool at_once) {
  constexpr size_t kMaxUnsaid = 64;
  note.text = as_one_line(note.text);
  if (at_once)
    (void)send_packet(control_, encode(note));
  else if (unsaid_.size() < kMaxUnsaid)
    unsaid_.push_back(std::move(note));
}

void ContainerSave::say_rest() {
  for (const Note& note : std::exchange(unsaid_, {})) (void)send_packet(control_, encode(note));
}

Result<void> ContainerSave::run(const Step& step, const TaskPlace& place, NoteLimit& limit, int task) {
  const bool slurmstepd_waits = task < 0;
  begun_ = true;
  if (slurmstepd_waits) (void)send_packet(control_, encode(Saving{place.cgroups}));
  auto saved = run_saver(step, place, limit, task);
  if (saved || saved.error().message().empty()) return saved;
  say({LogLevel::error, saved.error().line()}, slurmstepd_waits);
  if (!saved.error().hint().empty()) say({LogLevel::error, "hint: " + saved.error().hint()}, slurmstepd_waits);
  return saved;
}

Result<void> ContainerSave::run_saver(const Step& step, const TaskPlace& place, NoteLimit& limit, int task) {
  TRY_ASSIGN(Helper saver, start_saver(step, place));
  for (;;) {
    std::array<pollfd, 3> entries = {{{saver.socket.get(), POLLIN, 0}, {control_, POLLIN, 0}, {task, POLLIN, 0}}};
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return fail_errno(errno, "wait for the saver");
    if (entries[1].revents != 0 || entries[2].revents != 0) {
      // slurmstepd has said it itself.
      if (task < 0) (void)receive_bytes(control_, kMaxMessageBytes);
      return fail(ErrorKind::cancelled, task < 0 ? "" : "--container-save: the step was cancelled, nothing is saved");
    }
    if (entries[0].revents == 0) continue;
    TRY_ASSIGN(const auto message, hear(saver.socket.get()));
    if (!message) break;
    // slurmstepd writes them to its log.
    if (const auto* text = std::get_if<Note>(&*message))
      if (auto note = limit.allow(*text)) say(std::move(*note), task < 0);
    if (const auto* failure = std::get_if<Failure>(&*message)) return fail(error_of(*failure));
  }
  const auto status = saver.process.wait_for(kEndLimit);
  if (status && *status && (*status)->success()) return {};
  return fail(Error(ErrorKind::failure,
                    "saving the container " + (status && *status ? (*status)->text() : std::string("does not end")))
                  .with_code(ErrorCode::helper));
}

}  // namespace situla
