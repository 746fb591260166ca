// What shall change in a container? One form for built-in hooks, NVIDIA's driver, CDI specifications, network adapters
// and the mounts of fstab and options; apply.hpp makes it true.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/spec/environment.hpp"
#include "hooks/inject/edits/file_change.hpp"
#include "hooks/inject/ldcache/library_cache.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

/// A program of the host that a CDI specification wants to be run.
struct ProgramEdit {
  std::string path;
  std::vector<std::string> arguments;    ///< argv, with argv[0]
  std::vector<std::string> environment;  ///< "NAME=VALUE", all that it gets
  std::chrono::seconds limit{0};         ///< 0: a default
  std::string origin;
};

/// What a hook, a device or a part of a start wants to be changed; in the order in which it is applied.
struct ContainerEdits {
  Environment environment;
  std::vector<MountStep> mounts;
  std::vector<FileChange> files;
  std::vector<ProgramEdit> programs;
  LibraryCacheEdit libraries;
  std::vector<MountStep> mounts_after_hooks;  ///< a hook's that nobody builds upon: with those of fstab and options
  /// Whether files and mount points may be made in directories of the host that the container has. What devices need is
  /// made in the container only, whatever a link of the image or a mount of the site leads to.
  bool in_host_directories = false;
  [[nodiscard]] bool empty() const;
};

/// Adds a step of a device: covers come first, devices last. One of the same kind at the same place takes the place of
/// the earlier one (CDI specification 1.1.0, "containerEdits").
void add_step(ContainerEdits& edits, MountStep step);

/// Adds `more`: a later variable, file or step at the same place takes the place of the earlier one; exact repetitions
/// are dropped.
void append(ContainerEdits& edits, ContainerEdits more);
void append(LibraryCacheEdit& edit, LibraryCacheEdit more);

/// One line per edit, in the order of application, for people and tests:
///   env NAME=VALUE | a step as describe() has it | file PATH | link PATH -> TARGET | directory PATH |
///   run PROGRAM | library SONAME PATH | libraries in DIR | libraries first in DIR
std::string describe(const ContainerEdits& edits);

}  // namespace situla
