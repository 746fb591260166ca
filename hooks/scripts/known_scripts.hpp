// Is this script in hooks.d one that enroot itself ships, unchanged? Then the built-in hook does the same, faster.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "hooks/inject/hooks.hpp"

namespace situla {

struct KnownScript {
  std::string_view name;  ///< of the file
  BuiltInHook hook;
  uint64_t fingerprint;  ///< of a released file's content
};

/// Every release of enroot's scripts that does what the built-in hook does. Left out, so that they run as scripts, are
/// * 98-nvidia.sh and 99-nvidia.sh before 2.0, where the image's variables beat the job's, and 99-mellanox.sh before
///   3.1, which mounts verbs libraries of the host without being asked to;
/// * 10-home.sh before 3.0 (bind with all that is mounted beneath, no HOME for a remapped root), 20-autorc.sh, and
///   50-slurm-pmix.sh, which passes PMIX_* alone;
/// * 50-sharp.sh before 3.4.1, which does nothing without the SHARP daemon;
/// * 10-shadow.sh of 1.1 to 2.2, and what enroot's development head has of 10-devices.sh and 50-slurm-pmi.sh: not
///   compared.
std::span<const KnownScript> released_scripts();

/// FNV-1a (64 bits) of the lines that do something: comments, blank lines and blanks at the end differ between packages
/// (years, licences) and cannot change what these scripts do, none of which has them in a here-document. It is no
/// cryptographic digest and need not be: who can forge a script's content can as well leave the script away.
uint64_t fingerprint(std::string_view content);

/// The built-in hook that does what the script of this file name and content does; nullopt for everything else, also
/// for a changed copy.
std::optional<BuiltInHook> built_in_for(std::string_view name, std::string_view content,
                                        std::span<const KnownScript> known = released_scripts());

/// Names that enroot's packages install in hooks.d by themselves ("10-shadow.sh"): they say that the directory is
/// enroot's.
bool is_standard_script(std::string_view name);

/// The hooks that run on a node without hooks.d, each with the name its script would have there; sorted by it.
const std::vector<std::pair<std::string_view, BuiltInHook>>& standard_hooks();

}  // namespace situla
