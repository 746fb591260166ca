// What happens with the parts of a start (mounts of fstab, edits of a hook, mounts of options)? Each is made true in
// the container's root, or of a plan only kept; in both cases describe() shows it.
#pragma once

#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/inject/edits/apply.hpp"

namespace situla {

class Changes {
 public:
  /// shown: every line of every part is a debug line. dry_run: nothing is made but what preparing() gets.
  Changes(ApplyTarget target, bool shown, bool dry_run, LogSink& log)
      : target_(std::move(target)), shown_(shown), dry_run_(dry_run), log_(log) {}

  [[nodiscard]] bool dry_run() const { return dry_run_; }
  Result<void> make(ContainerEdits edits);
  /// Made in a dry run as well: what hooks look at.
  Result<void> make_always(ContainerEdits edits);
  /// A script whose part nobody knows before it runs; the caller runs it, but not in a dry run.
  void note_script(const std::string& path);

  /// Of a dry run, in the order of application.
  [[nodiscard]] std::vector<ContainerEdits> take_plan() { return std::move(plan_); }

 private:
  void show(const ContainerEdits& edits);

  ApplyTarget target_;
  bool shown_, dry_run_;
  LogSink& log_;
  std::vector<ContainerEdits> plan_;
  LibraryCacheEdit libraries_;  ///< of all parts until now: each writes the linker's files for the whole start
};

}  // namespace situla
