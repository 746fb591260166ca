// What is one thing to be mounted, and who asked for it? A typed step; option words end here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/sys/mount_api.hpp"

namespace situla {

enum class StepKind {
  bind,         ///< the tree at `source` appears at `target`
  filesystem,   ///< a new instance of `type`
  move,         ///< the mount at `source` goes to `target` (x-move)
  remount,      ///< flags are added to what is mounted at `target`
  detach,       ///< what is mounted at `target` goes away (x-detach)
  propagation,  ///< only the propagation of `target` changes
};

/// What to make at the target when nothing is there (x-create). automatic: a directory for a directory, else a file.
enum class CreateTarget { no, file, directory, automatic };

/// nofail: the step is skipped with a warning; silent as well: skipped without one.
enum class OnFailure { fail, warn, ignore };

struct MountStep {
  StepKind kind = StepKind::bind;
  std::string source;  ///< host path (bind, move), the kernel's "source" (filesystem), else empty
  std::string target;  ///< path inside the container
  std::string type;    ///< filesystem only: "tmpfs", "devpts", ...
  bool recursive = false;
  CreateTarget create = CreateTarget::no;
  OnFailure on_failure = OnFailure::fail;
  MountFlags flags;
  MountParameters parameters;  ///< filesystem only
  std::optional<Propagation> propagation;
  bool propagation_recursive = false;
  std::vector<std::string> ignored;  ///< option words that mean nothing here; apply() warns about them
  std::string origin;  ///< "--container-mounts", "/etc/enroot/mounts.d/10-system.fstab:3", "image /etc/fstab:1"
};

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

/// One line for people, options in a fixed order: "bind /src -> /dst rbind,ro  (--container-mounts)".
std::string describe(const MountStep& step);

}  // namespace situla
