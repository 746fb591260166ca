// Which named containers do steps of this node run, and whom does one ask to join? The broker of a step that runs it.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"

namespace situla {

/// Who and which: nothing in it is a name that a user chose.
struct RunningKey {
  uid_t uid = 0;
  dev_t device = 0;  ///< of the container's directory
  ino_t inode = 0;

  static Result<RunningKey> of(int directory, uid_t uid);
};

/// A socket <runtime>/containers/<uid>.<device>.<inode>/<job>.<step>, in directories that only root can enter. Removed
/// with the object; one of a killed broker is removed by whoever finds nobody listening.
class RunningContainer {
 public:
  static Result<RunningContainer> publish(const std::string& runtime, const RunningKey& key, uint32_t job,
                                          uint32_t step);
  RunningContainer(RunningContainer&& other) noexcept = default;
  RunningContainer& operator=(RunningContainer&&) = delete;
  ~RunningContainer();

  [[nodiscard]] int listener() const { return listener_.get(); }

 private:
  RunningContainer(UniqueFd listener, std::string path) : listener_(std::move(listener)), path_(std::move(path)) {}
  UniqueFd listener_;
  std::string path_;
};

/// Removes the sockets of killed brokers.
void sweep_running(const std::string& runtime);

/// Connections to all who run it.
std::vector<UniqueFd> connect_to_running(const std::string& runtime, const RunningKey& key);

}  // namespace situla
