#include "hooks/sources/open_source.hpp"

#include <cerrno>
#include <filesystem>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/identity.hpp"
#include "hooks/sources/file_source.hpp"

namespace situla {
namespace {

/// What cannot be read is explained by its errno.
ErrorCode code_of_path(const Error& error) {
  if (error.kind() == ErrorKind::not_found) return ErrorCode::image_not_found;
  const bool another_kind = error.kind() == ErrorKind::usage || error.errnum() == ENOTDIR;
  return another_kind ? ErrorCode::image_name : ErrorCode::none;
}

/// In a job it is not obvious where a path is looked up, and as whom.
std::string explain_path(const FileReference& reference, const Error& error) {
  if (error.kind() == ErrorKind::denied) return "it is read with the rights of uid " + std::to_string(geteuid());
  if (error.kind() == ErrorKind::usage) return "an image in a directory is oci:DIR or dir:DIR";
  if (error.errnum() == ENOTDIR) return "an image in one file is oci-archive:FILE or docker-archive:FILE";
  if (error.kind() != ErrorKind::not_found) return {};
  if (!reference.name.empty()) return "the path ends at the first ':', what follows is a tag";
  std::error_code ignored;
  const std::string directory = std::filesystem::current_path(ignored).string();
  return "it was looked for on " + printable(host_name()) +
         (reference.path.starts_with('/') ? "" : ", in " + printable(directory));
}

Result<std::unique_ptr<ImageSource>> open_file_source(const ImportRequest& request) {
  TRY_ASSIGN(FileReference reference, FileReference::parse(request.image));
  const bool directory = reference.kind == ImageKind::oci_layout || reference.kind == ImageKind::directory;
  auto files = directory ? open_image_directory(reference.path, request.budget)
                         : open_image_archive(reference.path, request.budget);
  if (!files) {
    const std::string hint = explain_path(reference, files.error());
    const ErrorCode code = code_of_path(files.error());
    return fail(std::move(files).error().with_code(code).with_hint(hint));
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
      return fail(Error(ErrorKind::usage, "import " + printable(request.image) + ": a path names no image to import")
                      .with_code(ErrorCode::image_name));
    case ImageKind::docker_daemon:
    case ImageKind::podman:
      return open_engine_source(request, progress);
    case ImageKind::oci_layout:
    case ImageKind::oci_archive:
    case ImageKind::docker_archive:
    case ImageKind::directory:
      return open_file_source(request);
  }
  return fail(Error(ErrorKind::usage, "import " + printable(request.image) + ": not an image")
                  .with_code(ErrorCode::image_name));
}

}  // namespace situla
