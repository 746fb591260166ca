#include "hooks/run/container_process.hpp"

#include <fcntl.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20U;

/// The mount that an open file is on, as mountinfo numbers it; empty when the kernel does not say.
std::string mount_number(int fd) {
  const std::string text = read_file("/proc/self/fdinfo/" + std::to_string(fd)).value_or("");
  for (const std::string_view line : split_nonempty(text, '\n'))
    if (const auto pair = cut(line, ':'); pair && pair->first == "mnt_id") return std::string(trim(pair->second));
  return {};
}

}  // namespace

std::string read_process_file(int process, const std::string& name) {
  const auto file = open_file_at(process, name, O_RDONLY);
  return file ? read_all(file->get(), kMaxFileBytes).value_or("") : std::string();
}

bool runs_host_program(int process) {
  const auto program = open_file_at(process, "exe", O_PATH);
  if (!program) return false;
  const std::string number = mount_number(program->get());
  if (number.empty()) return false;
  const std::string mounts = read_process_file(process, "mountinfo");
  for (const std::string_view line : split_nonempty(mounts, '\n'))
    if (line.substr(0, line.find(' ')) == number) return false;
  return true;
}

}  // namespace situla
