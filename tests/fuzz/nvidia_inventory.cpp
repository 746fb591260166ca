#include <cstdlib>

#include "hooks/inject/inventory/inventory_fields.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  const auto document = nvidia::parse_inventory(bytes);
  if (!document) return;
  for (const auto& library : document->inventory.libraries)
    if (library.path.starts_with('/') && library.path.find("/../") != std::string::npos) std::abort();
  // What was read is all there is.
  const auto again = nvidia::parse_inventory(nvidia::serialize(*document));
  if (!again || nvidia::serialize(*again) != nvidia::serialize(*document)) std::abort();
}
