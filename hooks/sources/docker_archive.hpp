// How is a file read that `docker save` wrote? manifest.json names a configuration and layers, without digests.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/sources/image_files.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// Layers are plain or compressed tars; each is checked against the configuration's diff_id. The image's digest is the
/// configuration's, Docker's image id. An archive that is only an OCI layout is read as one. text: for messages.
Result<std::unique_ptr<ImageSource>> make_docker_archive_source(std::unique_ptr<ImageFiles> files,
                                                                FileReference reference, std::string text);

}  // namespace situla
