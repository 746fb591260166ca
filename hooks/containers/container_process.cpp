#include "hooks/containers/container_process.hpp"

#include <algorithm>

#include <fcntl.h>

#include "common/sys/file.hpp"
#include "common/sys/mount_table.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20U;

}  // namespace

std::string read_process_file(int process, const std::string& name) {
  const auto file = open_file_at(process, name, O_RDONLY);
  return file ? read_all(file->get(), kMaxFileBytes).value_or("") : std::string();
}

bool runs_host_program(int process) {
  const auto program = open_file_at(process, "exe", O_PATH);
  if (!program) return false;
  const auto mount = mount_id(program->get());
  if (!mount) return false;
  const auto mounts = parse_mount_table(read_process_file(process, "mountinfo"));
  return std::none_of(mounts.begin(), mounts.end(), [&](const MountRecord& known) { return known.id == *mount; });
}

}  // namespace situla
