// What shall change in a container so that its processes can use devices of the host? One form for NVIDIA's driver, CDI
// specifications and network adapters; apply.hpp makes it true.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/spec/environment.hpp"
#include "common/sys/mount_api.hpp"
#include "hooks/inject/edits/file_change.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

struct DeviceNumber {
  char type = 'c';  ///< 'c' or 'b'
  uint32_t major = 0, minor = 0;
  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

/// A node of the host appears in the container, as it is: no process of a user makes nodes, or gives them away.
struct DeviceEdit {
  std::string source;                  ///< absolute, on the host
  std::string target;                  ///< absolute, inside
  std::optional<DeviceNumber> number;  ///< what the source has to be; nullopt: any device
  OnFailure on_failure = OnFailure::fail;
  std::string origin;  ///< who asked for it: "NVIDIA_VISIBLE_DEVICES", "/etc/cdi/amd.yaml", ...
};

/// What the source of a mount has to be; everything else is refused.
enum class SourceType { regular, directory, socket, any };

struct MountEdit {
  std::string source;  ///< absolute, on the host
  std::string target;  ///< absolute, inside; made, as file or directory, where nothing is
  SourceType type = SourceType::any;
  bool recursive = false;
  MountFlags flags;  ///< no_dev is left out where the source is a device
  OnFailure on_failure = OnFailure::fail;
  std::string origin;
};

/// A small memory file system hides what is at `target`. Mounts, devices and files beneath it come afterwards; the
/// flags are added last.
struct CoverEdit {
  std::string target;  ///< a directory, absolute, inside
  mode_t mode = 0755;
  MountFlags flags;
  OnFailure on_failure = OnFailure::fail;
  std::string origin;
};

/// A library that the dynamic linker shall find by its SONAME.
struct CachedLibrary {
  std::string soname;  ///< "libcuda.so.1"
  std::string path;    ///< inside: "/usr/lib/x86_64-linux-gnu/libcuda.so.1"; a link to the file or the file itself
  bool is_32bit = false;
  friend bool operator==(const CachedLibrary&, const CachedLibrary&) = default;
};

struct LibraryCacheEdit {
  std::vector<CachedLibrary> libraries;
  /// Inside; every library in them is to be found (CDI's update-ldcache), and SONAME links are made where they lack.
  std::vector<std::string> directories;
  /// Inside; their libraries come before all others (CUDA forward compatibility). Existing links are enough there.
  std::vector<std::string> preferred;
  [[nodiscard]] bool empty() const { return libraries.empty() && directories.empty() && preferred.empty(); }
};

/// A program of the host that a CDI specification wants to be run.
struct ProgramEdit {
  std::string path;
  std::vector<std::string> arguments;    ///< argv, with argv[0]
  std::vector<std::string> environment;  ///< "NAME=VALUE", all that it gets
  std::chrono::seconds limit{0};         ///< 0: a default
  std::string origin;
};

/// In the order in which they are applied.
struct ContainerEdits {
  Environment environment;
  std::vector<CoverEdit> covers;
  std::vector<MountEdit> mounts;
  std::vector<DeviceEdit> devices;
  std::vector<FileChange> files;
  std::vector<ProgramEdit> programs;
  LibraryCacheEdit libraries;
  [[nodiscard]] bool empty() const;
};

/// Adds `more`: a later variable, device or mount at the same place takes the place of the earlier one (CDI
/// specification 1.1.0, "containerEdits"); exact repetitions are dropped.
void append(ContainerEdits& edits, ContainerEdits more);

/// One line per edit, in the order of application, for people and tests:
///   env NAME=VALUE | cover DIR | mount SOURCE on TARGET [ro, ...] | device SOURCE on TARGET (c 195:0) |
///   file PATH | link PATH -> TARGET | run PROGRAM | library SONAME PATH | libraries in DIR | libraries first in DIR
std::string describe(const ContainerEdits& edits);

}  // namespace situla
