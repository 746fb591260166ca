#include "common/sys/mount/image_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {

Result<UniqueFd> open_image_file(const std::string& path) {
  auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file)
    return fail(std::move(file).error().with_context("image").with_hint(
        "a path is looked up on the compute node, relative to the job's directory"));
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return fail(Error(ErrorKind::usage, "image " + printable(path) + ": not a regular file")
                    .with_hint("make a squashfs file with: situla import -o image.sqsh docker://..."));
  return file;
}

}  // namespace situla
