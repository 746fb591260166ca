// How does an image come to a step that only its user may read?
#pragma once

namespace situla {

/// As the job user, with the descriptors of a builder (builder_fd): turns an archive, a layout or an engine's image
/// into a nameless squashfs file in ENROOT_TEMP_PATH and sends it to the broker. Returns the exit code.
int import_as_user();

}  // namespace situla
