// --container-save: what is saved, when does that begin, who hears of it, and who can stop it?
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// Of a step with that option, from the moment when its container is ready.
class ContainerSave {
 public:
  /// files: the parcel in which the builder has left them; image: the file beneath them if the broker has mounted it,
  /// or none. has_range: as JoinReply::has_range; one without has no owners but its user. control: the socket to
  /// slurmstepd.
  ContainerSave(UniqueFd files, UniqueFd image, bool has_range, int control)
      : files_(std::move(files)), image_(std::move(image)), has_range_(has_range), control_(control) {}

  /// Connections of the tasks, each of which says TaskEnded when its program has ended: then the last one waits for the
  /// save, of which it has the exit status.
  std::vector<UniqueFd> tasks;
  [[nodiscard]] uint32_t count_ended() { return ++ended_; }
  [[nodiscard]] bool begun() const { return begun_; }

  /// Runs the saver to its end. task: the connection of the last task; or -1, when all were killed and slurmstepd
  /// waits. When the step is cancelled, so is the saver, and with it its file, which has no name yet: the task that
  /// waits is killed, or slurmstepd says Finish once more, or goes away.
  Result<void> run(const Step& step, const TaskPlace& place, NoteLimit& limit, int task);
  /// What there was to say while slurmstepd did not listen.
  void say_rest();

 private:
  Result<Helper> start_saver(const Step& step, const TaskPlace& place) const;
  Result<void> run_saver(const Step& step, const TaskPlace& place, NoteLimit& limit, int task);
  void say(Note note, bool at_once);

  UniqueFd files_, image_;
  bool has_range_;
  int control_;
  uint32_t ended_ = 0;
  bool begun_ = false;
  std::vector<Note> unsaid_;
};

}  // namespace situla
