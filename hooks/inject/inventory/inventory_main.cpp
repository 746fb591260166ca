// situla-inventory [--if-stale]: gathers what the node has of NVIDIA's and keeps it, as root when slurmd starts, and
// when a step has ended, if it is not right any more. Without a driver there is nothing to keep, and that is no
// failure.
#include <iostream>

#include <unistd.h>

#include "common/spec/site_config.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "hooks/inject/inventory/inventory_cache.hpp"

namespace situla::nvidia {
namespace {

class StandardError final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level >= LogLevel::warning) std::cerr << "situla-inventory: " << message << '\n';
  }
};

Result<void> keep(bool if_stale, LogSink& log) {
  const std::string file = SITULA_RUNTIME_DIR "/nvidia.json";
  // Out of the job whose end is the occasion: with version 2 of cgroups its devices would be all there are, and a
  // driver that hangs would keep the job's cgroup. Best effort: who is not root stays where he is.
  (void)move_to_cgroups(getpid(), "0::/\n");
  TRY_ASSIGN(const SiteConfig site, SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml"));
  const auto opened = HostRoots::open(site.device_settings.driver_root, site.device_settings.device_root);
  // Where there is no driver, its directory need not be there either.
  if (!opened && opened.error().kind() == ErrorKind::not_found) {
    TRY_ASSIGN(const HostRoots devices, HostRoots::open("/", site.device_settings.device_root));
    if (!devices.devices.exists("/proc/driver/nvidia/version")) return {};
  }
  if (!opened) return fail(opened.error());
  const HostRoots& roots = *opened;
  const GatherOptions options{program_directory() + "/situla-nvml", kNvmlLimit};
  if (if_stale && kept_inventory_is_right(roots, file)) return {};
  auto kept = keep_node_inventory(roots, file, options, log);
  if (!kept && kept.error().kind() == ErrorKind::not_found && !has_driver(roots)) return {};
  return kept;
}

}  // namespace
}  // namespace situla::nvidia

int main(int argc, char** argv) {
  const bool if_stale = argc == 2 && std::string_view(argv[1]) == "--if-stale";
  if (argc > 2 || (argc == 2 && !if_stale)) {
    std::cerr << "usage: situla-inventory [--if-stale]\n";
    return 2;
  }
  situla::nvidia::StandardError log;
  const auto kept = situla::nvidia::keep(if_stale, log);
  if (kept) return 0;
  log.error(kept.error().text());
  return 1;
}
