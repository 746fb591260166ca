// How does the container of a step become the squashfs file of --container-save?
#pragma once

namespace situla {

/// With the descriptors of common/protocol/contract.hpp. An existing file is replaced in one moment, also when it is
/// the image that the container was started from. Returns the exit code.
int save_container();

}  // namespace situla
