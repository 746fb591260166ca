// situla-inventory FILE [DRIVER_ROOT [DEVICE_ROOT]]: gathers what the node has of NVIDIA's and keeps it in FILE, as
// root when slurmd starts. Without a driver there is nothing to keep, and that is no failure.
#include <iostream>

#include "common/sys/file.hpp"
#include "hooks/inject/nvidia/inventory_cache.hpp"

namespace situla::nvidia {
namespace {

class StandardError final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level >= LogLevel::warning) std::cerr << "situla-inventory: " << message << '\n';
  }
};

Result<void> keep(const std::string& file, const std::string& driver_root, const std::string& device_root,
                  LogSink& log) {
  HostRoots roots{driver_root, device_root, RootDir::from_fd({}), RootDir::from_fd({})};
  TRY_ASSIGN(roots.driver, RootDir::open(driver_root));
  TRY_ASSIGN(roots.devices, RootDir::open(device_root));
  const GatherOptions options{program_directory() + "/situla-nvml", kNvmlLimit};
  auto kept = keep_node_inventory(roots, file, options, log);
  if (!kept && kept.error().kind() == ErrorKind::not_found && !has_driver(roots)) return {};
  return kept;
}

}  // namespace
}  // namespace situla::nvidia

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4 || argv[1][0] != '/') {
    std::cerr << "usage: situla-inventory FILE [DRIVER_ROOT [DEVICE_ROOT]]\n";
    return 2;
  }
  situla::nvidia::StandardError log;
  const auto kept = situla::nvidia::keep(argv[1], argc > 2 ? argv[2] : "/", argc > 3 ? argv[3] : "/", log);
  if (kept) return 0;
  log.error(kept.error().text());
  return 1;
}
