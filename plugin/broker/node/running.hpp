// Which containers do steps of this node run, and whom does one ask to join? The broker of a step that runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// Under which name a container is looked for. Who found one compares its directory with the one that the other side
/// holds open: a number that is given out again, or a copied identity, joins nothing.
class RunningKey {
 public:
  /// identity: as the user's process says, 32 hexadecimal digits; anything else counts as none, and then the
  /// directory's number is the name.
  static Result<RunningKey> of_container(uid_t uid, std::string_view identity, int directory);
  /// The container without a name of a step.
  static RunningKey of_step(uid_t uid, uint32_t job, uint32_t step);

  /// <uid>.<name>; nothing in it is a text that a user chose, but for digits.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  explicit RunningKey(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

/// A socket <runtime>/containers/<key>/<job>.<step>, in directories that only root can enter. Removed with the object;
/// one of a killed broker is removed by whoever finds nobody listening.
class RunningContainer {
 public:
  /// directory: of a named container, held as long as others may join: while it is, no other directory gets its number.
  static Result<RunningContainer> publish(const std::string& runtime, const RunningKey& key, UniqueFd directory,
                                          uint32_t job, uint32_t step);
  RunningContainer(RunningContainer&& other) noexcept = default;
  RunningContainer& operator=(RunningContainer&&) = delete;
  ~RunningContainer();

  [[nodiscard]] int listener() const { return listener_.get(); }
  [[nodiscard]] const UniqueFd& directory() const { return directory_; }

 private:
  RunningContainer(UniqueFd listener, UniqueFd directory, std::string path)
      : listener_(std::move(listener)), directory_(std::move(directory)), path_(std::move(path)) {}
  UniqueFd listener_, directory_;
  std::string path_;
};

/// Removes the sockets of a step that has ended, or of all steps of a job that has. By their names: to connect would be
/// to join.
void forget_running(const std::string& runtime, uint32_t job, std::optional<uint32_t> step = std::nullopt);

/// What the tasks of a step join.
struct StepContainer {
  NamespaceFds namespaces;
  std::string workdir;     ///< of the image
  UniqueFd environment;    ///< for those tasks: a sealed memory file
  bool has_range = false;  ///< as JoinReply::has_range
};

/// Asks the brokers of other steps that run it. directory: of a named container, or none. nullopt: nobody runs it.
/// ErrorKind::unsupported: a broker of another release does, of a step that has run since before an upgrade.
/// Namespaces are held by the descriptors from here on: it does not matter whether the container's own tasks end before
/// ours have joined.
Result<std::optional<StepContainer>> find_running(const std::string& runtime, const RunningKey& key,
                                                  const UniqueFd& directory);

}  // namespace situla
