// How is an image read that skopeo, umoci or buildah wrote as files? OCI image layouts, and skopeo's `dir:`.
#pragma once

#include <memory>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/sources/image_files.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// OCI image-spec, image-layout.md: index.json and blobs/. The reference's name is a tag.
std::unique_ptr<ImageSource> make_oci_source(std::unique_ptr<ImageFiles> files, FileReference reference);
/// containers-transports(5), "dir": manifest.json, and blobs named by their hexadecimal digest.
std::unique_ptr<ImageSource> make_directory_source(std::unique_ptr<ImageFiles> files, const FileReference& reference);

}  // namespace situla
