#include <cstdlib>
#include <set>

#include "common/spec/site_config.hpp"
#include "tests/fuzz/target.hpp"

namespace {

bool is_share(const situla::DiskShare& share) {
  return share.percent <= 100 && (share.percent == 0 || share.bytes == 0);
}

}  // namespace

void situla::fuzz(std::string_view bytes) {
  const auto config = SiteConfig::parse(bytes, "situla.toml");
  if (!config) {
    if (config.error().kind() != ErrorKind::usage) std::abort();
    return;
  }
  if (!config->store_path.starts_with('/') || config->service_user == "root" || config->import_user == "root")
    std::abort();
  if (!is_share(config->bytes_per_user) || !is_share(config->store_max) || !is_share(config->local_tier_max))
    std::abort();
  if (config->imports_per_user > 1024 || config->import_timeout.count() < 1 || config->build_timeout.count() < 1)
    std::abort();
  if (config->import_budget.layers == 0 || config->import_budget.metadata == 0) std::abort();
  std::set<std::string> prefixes;
  for (const RegistryRule& rule : config->registries)
    if (rule.prefix.empty() || !prefixes.insert(rule.prefix).second) std::abort();
}
