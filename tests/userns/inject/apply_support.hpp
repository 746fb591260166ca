// Where are edits applied in these tests? To a root that a child in a user and mount namespace of its own has mounted,
// beside a tree of the host that must stay as it is.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/scope_exit.hpp"
#include "common/sys/root_dir.hpp"
#include "hooks/inject/edits/apply.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace situla::test {

/// What a body gets, in the child.
struct ApplyScene {
  std::string host;  ///< a directory with the host's files
  std::string path;  ///< the root
  const RootDir& root;
  MemoryLog& log;

  [[nodiscard]] Result<void> apply(const ContainerEdits& edits) const {
    return situla::apply(edits, {root, path}, log);
  }
  [[nodiscard]] std::string in_root(const std::string& name) const { return path + name; }
};

/// <dir>/root with /usr/lib and /etc, and <dir>/host with files to be mounted and a canary that must not change.
class ApplyTest {
 public:
  ApplyTest();
  using SceneBody = std::function<Result<void>(ApplyScene&)>;
  /// With the new mount calls and openat2(2) as root of the namespace, and without them as the user himself; the same
  /// files in both. Checks that both succeed, and that the host's files are as they were.
  void run(const SceneBody& body) const;
  /// Only the first of the two.
  [[nodiscard]] std::string run_once(const SceneBody& body) const;

  TempDir dir;

 private:
  /// Gives all of it to the user whom the child becomes.
  void own() const;
  [[nodiscard]] std::string run_as(const SceneBody& body, bool modern) const;
};

/// Path -> type, size and content of all that is in a directory, for comparison.
std::map<std::string, std::string> snapshot(const std::string& directory);
/// Mount points that are not beneath the path.
Result<std::vector<std::string>> mounts_outside(const std::string& path);
/// What of `after` is not in `before`, both sorted. One of before that is gone says nothing: when its directory is
/// removed anywhere on the machine, it goes in all mount namespaces.
std::vector<std::string> added_mounts(const std::vector<std::string>& before, const std::vector<std::string>& after);
/// "ro,nosuid,nodev,relatime" of what is mounted at the path last; "" when nothing is.
Result<std::string> mount_options(const std::string& path);
/// How many mounts are there?
Result<size_t> mount_count();
/// A device with this number, whatever else is in the way.
bool is_device(const std::string& path, unsigned major_number, unsigned minor_number);

inline MountStep cover_step(const std::string& target) {
  return {.kind = StepKind::cover, .target = target};
}

inline MountStep device(const std::string& source, const std::string& target) {
  return {.kind = StepKind::device, .source = source, .target = target, .origin = "test"};
}

inline MountStep host_file(const std::string& source, const std::string& target,
                           SourceType type = SourceType::regular) {
  return {.kind = StepKind::host_file,
          .source = source,
          .target = target,
          .flags = {.read_only = true, .no_suid = true, .no_dev = true},
          .source_type = type,
          .origin = "test"};
}

inline FileChange link_change(const std::string& path, const std::string& target) {
  return {FileChange::Kind::link, path, target, 0};
}

inline FileChange write_change(const std::string& path, const std::string& content) {
  return {FileChange::Kind::write, path, content, 0644};
}

/// ContainerEdits from single ones.
template <typename... Edits>
ContainerEdits edits_of(const Edits&... edits) {
  ContainerEdits all;
  const auto add = [&](const auto& edit) {
    using Edit = std::decay_t<decltype(edit)>;
    if constexpr (std::is_same_v<Edit, MountStep>) add_step(all, edit);
    if constexpr (std::is_same_v<Edit, FileChange>) all.files.push_back(edit);
    if constexpr (std::is_same_v<Edit, ProgramEdit>) all.programs.push_back(edit);
  };
  (add(edits), ...);
  return all;
}

/// Whether a result is an error whose text contains all of these.
bool fails_with(const Result<void>& result, const std::vector<std::string>& parts);

}  // namespace situla::test
