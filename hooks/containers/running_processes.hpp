// Which processes run in which containers? COMPAT.md section 3, `list --fancy`. Nothing is recorded anywhere: the
// kernel knows.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/spec/step_name.hpp"
#include "hooks/containers/named_container.hpp"

namespace situla {

/// The source of a container's overlay, as mountinfo shows it: how its processes are recognised from outside. Of a
/// container without identity (container_identity.hpp) nothing can be told: its processes are those of no container.
std::string container_mark(const NamedContainer& container);
/// Of one without a name. `scratch_name`: "pyxis_JOB.STEP"; anything else: it is no step's.
std::string step_mark(const std::string& scratch_name);
/// Directories that hold the tree of an image which `start` could not mount begin like this.
constexpr std::string_view kStartPrefix = "situla-start.";
/// With this node's name: locks of directories are not seen by others that share the file system.
std::string start_prefix();
/// An extended attribute of a step's root: the name of its image. Not exported.
constexpr const char* kImageAttribute = "user.situla.image";

/// What processes are looked for of.
struct KnownContainer {
  std::string path;  ///< for whoever asks
  dev_t device = 0;
  ino_t inode = 0;
  std::string identity;  ///< may be empty

  static std::optional<KnownContainer> of(const NamedContainer& container);
};

/// The oldest process of a mount namespace whose root is a container, as ps(1) shows it.
struct RunningProcess {
  std::optional<std::string> container;  ///< KnownContainer::path; none: a container without a name, or an unknown one
  std::optional<StepName> step;          ///< whose container without a name it is
  std::string image;                     ///< of that step, if it is known; printable
  std::optional<uint32_t> job;           ///< whose cgroup it is in; none: not known, or outside of all jobs
  pid_t pid = 0;
  std::string comm, state, command;  ///< state: ps(1) STAT; printable
  std::chrono::system_clock::time_point started;
  std::chrono::seconds elapsed{0};
  uint64_t mount_namespace = 0, user_namespace = 0;  ///< inode numbers
};

/// Of every container whose processes the caller may look at, in the order of their age. A container that was made
/// later at the same path is another one. A process that ends meanwhile is not listed.
Result<std::vector<RunningProcess>> running_processes(const std::vector<KnownContainer>& containers);

}  // namespace situla
