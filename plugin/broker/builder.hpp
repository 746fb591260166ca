// How does the container's builder end, and what is removed when it could not do so itself?
#pragma once

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

struct Builder {
  Helper helper;
  std::string scratch_path;  ///< what it has on disk, as it says: for the cleaner that runs as the user; may be empty
  bool stays = false;        ///< it keeps that until its connection is closed

  [[nodiscard]] int socket() const { return helper.socket.get(); }

  /// Waits until it has ended and nothing is left of what it made outside of the container's namespaces. orderly: the
  /// tasks have ended. ready: the container was.
  void end(const Step& step, const TaskPlace& place, bool orderly, bool ready);

 private:
  void drain_messages();
};

}  // namespace situla
