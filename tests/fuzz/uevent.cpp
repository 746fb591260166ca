#include <cstdlib>

#include "hooks/inject/hca/adapters.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  const hca::Uevent event = hca::parse_uevent(bytes);
  if (!event.name.empty() && !hca::is_file_name(event.name)) std::abort();
  // Beneath /dev, whatever the file says.
  const std::string node = "/" + event.node + "/";
  if (node.find("/../") != std::string::npos || node.find("/./") != std::string::npos) std::abort();
  if (!event.node.empty() && node.find("//") != std::string::npos) std::abort();
  if (event.name.find('\0') != std::string::npos || event.node.find('\0') != std::string::npos) std::abort();
  // Reading it takes no line for two.
  if (!event.name.empty() && hca::parse_uevent("NAME=" + event.name).name != event.name) std::abort();
}
