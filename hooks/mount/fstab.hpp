// Which mounts does an fstab file of enroot's dialect ask for? COMPAT.md section 6, "fstab dialect".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/mount_option.hpp"
#include "hooks/mount/step.hpp"

namespace situla {

struct FstabEntry {
  MountStep step;
  int pass = 0;  ///< fs_passno: -1 is mounted before the hooks, 0 after them, anything else never
};

/// Parses a whole file. ${NAME} is replaced from `environment` before the line is cut into fields, so a variable may
/// hold several of them. Blank lines, comments and lines of other passes are skipped. `where` names the file in errors
/// and origins ("image /etc/fstab").
Result<std::vector<FstabEntry>> parse_fstab(std::string_view text, const Environment& environment,
                                            const std::string& where);

/// The steps of one pass, whichever number it has, with nothing replaced: what a script has written for enroot-mount or
/// to ENROOT_MOUNTS.
Result<std::vector<MountStep>> parse_literal_fstab(std::string_view text, int pass, const std::string& where);

/// The same for one line that came from somewhere else; origin is used as it is.
Result<FstabEntry> parse_fstab_line(std::string_view line, const std::string& origin);

/// A --container-mounts entry, $NAME and ${NAME} replaced. ErrorKind::usage when what they give is no path, and for a
/// flag that mount(8) does not know.
Result<MountStep> step_from_option(const MountOption& option, const Environment& environment);
/// ErrorKind::not_found, in the words of COMPAT.md 10, for the first whose source is not there, unless it has nofail:
/// before anything is done for them that takes long. Of what step_from_option() refuses, its error.
Result<void> check_sources(const std::vector<MountOption>& options, const Environment& environment);
/// An argument of --mount: SRC:DST:FLAGS as --container-mounts has it, or the fields of a line of fstab with ':' for
/// blanks (COMPAT.md 3). Variables are replaced in images of registries only.
Result<MountStep> step_from_argument(std::string_view argument, const std::string& origin,
                                     const Environment& environment);

/// The whole of the text; negative ones as well.
std::optional<int> parse_integer(std::string_view text);

/// Replaces ${NAME} only, as enroot does in its files; unknown names become "".
std::string expand_braced(std::string_view text, const Environment& environment);

}  // namespace situla
