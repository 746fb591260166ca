#include "common/sys/installed.hpp"

#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/sys/file.hpp"

namespace situla {

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
