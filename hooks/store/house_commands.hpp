// What do the words of `situla images`, `prune`, `rm`, `pin` and `verify` mean to the store?
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {

bool is_house_command(const std::string& word);

/// words: the command, `images [--json]`, `prune --unused-for SECONDS [--to BYTES] [--dry-run]`, `rm WORD...`, `pin
/// [--undo] WORD...`, `verify [WORD...]`, as the command line of `situla` has checked them; they may come from somebody
/// else all the same. user: as of Housekeeping. now: seconds since the epoch.
Result<void> run_house_command(const ImageStore& store, const std::vector<std::string>& words,
                               std::optional<uid_t> user, std::ostream& out, int64_t now);

}  // namespace situla
