// Of which image of the node's store is a named container's own copy? So that the kernel mounts that image, once for
// all, where otherwise a process would serve the copy.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"

namespace situla {

/// Notes in a file of root below <runtime>/copies that this user was given the image of that name to copy, and what his
/// builder says of the copy. It may say what it likes: the user has the bytes of that image already. A user has so many
/// notes at most; the oldest goes. They go with the node's next start, too.
Result<void> note_copied_image(const std::string& runtime, uid_t uid, const CopiedImageWanted& copy,
                               const std::string& image);

/// The name of the image, if the note is of this user, this container and this very file.
std::optional<std::string> find_copied_image(const std::string& runtime, uid_t uid, const CopiedImageWanted& copy);

}  // namespace situla
