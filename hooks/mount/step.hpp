// What is one thing to be mounted, and who asked for it? A typed step; option words end here.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/device_number.hpp"

namespace situla {

/// The first three are what devices need. They are made with more care, because a specification or an image chose the
/// paths and not the user: the source is looked at before it is used, the target is made, but never through an image's
/// link at /proc or /sys nor over the root, and what is there already is not mounted again.
enum class StepKind {
  cover,       ///< a small memory file system hides what is at `target`, until it is read-only that can be written to
  host_file,   ///< a file, directory or socket of the host appears at `target`
  device,      ///< a node of the host does, as it is: no process of a user makes nodes, or gives them away
  bind,        ///< the tree at `source` appears at `target`
  filesystem,  ///< a new instance of `type`
  image,    ///< an image appears at `target`, or a directory or file in it: a squashfs file of the host, by a process
            ///< that serves it, or an image of a registry
  move,     ///< the mount at `source` goes to `target` (x-move)
  remount,  ///< flags are added to what is mounted at `target`
  detach,   ///< what is mounted at `target` goes away (x-detach)
  propagation,  ///< only the propagation of `target` changes
};

/// What to make at the target when nothing is there (x-create). automatic: a directory for a directory, else a file.
enum class CreateTarget { no, file, directory, automatic };

/// nofail: the step is skipped with a warning; silent as well: skipped without one.
enum class OnFailure { fail, warn, ignore };

/// What the source of a host_file has to be; everything else is refused.
enum class SourceType { any, regular, directory, socket };

/// Where an image of a registry is, once somebody has fetched it.
struct ImagePlace {
  std::string directory{};  ///< on which the kernel has mounted it for this user; empty: nowhere
  std::shared_ptr<const UniqueFd>
      file{};  ///< without a directory: the image, open for reading; none: it cannot be had, and need not
  friend bool operator==(const ImagePlace&, const ImagePlace&) = default;
};
/// By reference, as mounts have it.
using ImagePlaces = std::map<std::string, ImagePlace>;

struct MountStep {
  StepKind kind = StepKind::bind;
  std::string source{};  ///< host path (host_file, device, bind, move, image: FILE or FILE/PATH in it), the kernel's
                         ///< "source" (filesystem), an image's reference (is_registry_image()), else empty
  std::string target{};  ///< path inside the container
  std::string type{};    ///< filesystem only: "tmpfs", "devpts", ...
  bool recursive = false;
  CreateTarget create = CreateTarget::no;
  OnFailure on_failure = OnFailure::fail;
  MountFlags flags{};            ///< no_dev is left out where a host_file is a device
  MountParameters parameters{};  ///< filesystem, and the mode of a cover
  std::optional<Propagation> propagation{};
  bool propagation_recursive = false;
  SourceType source_type = SourceType::any;  ///< host_file only
  std::optional<DeviceNumber> number{};      ///< device only: what the source has to be; nullopt: any device
  std::string subpath{};                     ///< image only: what of it is shown; empty: all
  std::optional<ImagePlace> place{};         ///< image of a registry only; nullopt: nobody has fetched it
  std::vector<std::string> ignored{};        ///< option words that mean nothing here; apply() warns about them
  std::string origin{};  ///< "--container-mounts", "/etc/enroot/mounts.d/10-system.fstab:3", "NVIDIA_VISIBLE_DEVICES"
  friend bool operator==(const MountStep&, const MountStep&) = default;
};

/// Whether it is of the kinds that devices need, and is made with their care.
inline bool is_for_device(const MountStep& step) {
  return step.kind == StepKind::cover || step.kind == StepKind::host_file || step.kind == StepKind::device;
}

/// The fields of an fstab line before they mean anything; empty: the field is missing.
struct MountFields {
  std::string source, target, type;
  std::vector<std::string> options;
};

/// Gives the fields their meaning by enroot's rules (COMPAT.md 6, "fstab dialect").
Result<MountStep> make_step(const MountFields& fields, const std::string& origin);

/// Whether a word alone is a mount option and not a file system type: "bind", "ro", "x-create=dir", anything with ','
/// or '='.
bool is_mount_option(std::string_view word);

/// The words that stand for flags that are added, in a fixed order: "ro", "nosuid", ...
std::vector<std::string> flag_words(const MountFlags& flags);

/// "docker://...": it has to be fetched before it can be mounted.
bool is_of_registry(const MountStep& step);

/// What is done, for errors: "bind /src on /dst", "mount tmpfs on /tmp", "unmount /dev".
std::string operand(const MountStep& step);
/// The same with options in a fixed order, and who asked: "bind /src on /dst [recursive, ro]  (--container-mounts)".
std::string describe(const MountStep& step);

}  // namespace situla
