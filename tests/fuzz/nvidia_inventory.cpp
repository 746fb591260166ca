#include <cstdlib>

#include "hooks/inject/nvidia/inventory.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  const auto inventory = nvidia::parse_inventory(bytes);
  if (!inventory) return;
  for (const auto& library : inventory->libraries)
    if (library.path.starts_with('/') && library.path.find("/../") != std::string::npos) std::abort();
  // What was read is all there is.
  const auto again = nvidia::parse_inventory(nvidia::serialize(*inventory));
  if (!again || nvidia::serialize(*again) != nvidia::serialize(*inventory)) std::abort();
}
