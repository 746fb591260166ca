#include "hooks/run/stage.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/file.hpp"
#include "common/sys/private_directory.hpp"

namespace situla {

Result<UniqueFd> open_stage(const std::string& path) {
  TRY_ASSIGN(PrivateDirectory stage, PrivateDirectory::open_or_make(path, "ENROOT_RUNTIME_PATH"));
  return std::move(stage).take_fd();
}

Result<UniqueFd> temporary_file(const UniqueFd& stage, std::string_view content) {
  TRY_ASSIGN(UniqueFd file, open_file_at(stage.get(), ".", O_TMPFILE | O_RDWR | O_APPEND, 0600));
  TRY(write_all(file.get(), content));
  if (lseek(file.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "rewind a temporary file");
  return file;
}

}  // namespace situla
