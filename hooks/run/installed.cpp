#include "hooks/run/installed.hpp"

#include <array>
#include <climits>

#include <unistd.h>

#include "common/base/installation.hpp"

namespace situla {
namespace {

std::string program_directory() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  const std::string program(path.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return program.substr(0, program.rfind('/'));
}

}  // namespace

Result<std::string> find_installed(const std::string& name) {
  const std::string here = program_directory();
  for (const std::string& directory : {here, here + "/../libexec/situla", std::string(libexec_directory())}) {
    std::string path = directory + "/" + name;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return fail(Error(ErrorKind::not_found, "file " + name + " of Situla not found")
                  .with_hint("it belongs in " + std::string(libexec_directory()) +
                             " beside Situla's other programs; install them again"));
}

}  // namespace situla
