#include "hooks/import/image_source.hpp"

#include "common/base/text.hpp"
#include "hooks/import/docker_archive.hpp"
#include "hooks/import/layout_source.hpp"
#include "hooks/import/registry_source.hpp"

namespace situla {
namespace {

Result<std::unique_ptr<ImageSource>> open_file_source(const std::string& image) {
  TRY_ASSIGN(FileReference reference, FileReference::parse(image));
  const bool directory = reference.kind == ImageKind::oci_layout || reference.kind == ImageKind::directory;
  auto files = directory ? open_image_directory(reference.path) : open_image_archive(reference.path);
  if (!files) {
    const bool colon = files.error().kind() == ErrorKind::not_found && !reference.name.empty();
    return fail(
        std::move(files).error().with_hint(colon ? "the path ends at the first ':', what follows is a tag" : ""));
  }
  if (reference.kind == ImageKind::directory) return make_directory_source(std::move(*files), reference);
  if (reference.kind != ImageKind::docker_archive) return make_oci_source(std::move(*files), std::move(reference));
  std::string text = reference.text();
  return make_docker_archive_source(std::move(*files), std::move(reference), std::move(text));
}

}  // namespace

Result<std::unique_ptr<ImageSource>> open_source(const ImportRequest& request, Progress& progress) {
  switch (image_kind(request.image)) {
    case ImageKind::registry:
      return open_registry_source(request, progress);
    case ImageKind::path:
      return fail(ErrorKind::usage, "import " + printable(request.image) + ": a path names no image to import");
    case ImageKind::docker_daemon:
    case ImageKind::podman:
      return fail(ErrorKind::unsupported, "import from dockerd:// and podman:// is not supported yet");
    case ImageKind::oci_layout:
    case ImageKind::oci_archive:
    case ImageKind::docker_archive:
    case ImageKind::directory:
      return open_file_source(request.image);
  }
  return fail(ErrorKind::usage, "import " + printable(request.image) + ": not an image");
}

}  // namespace situla
