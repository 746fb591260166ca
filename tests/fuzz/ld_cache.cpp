#include "hooks/inject/ldcache/ld_cache.hpp"

#include <cstdlib>
#include <string>

#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  auto cache = LdCache::parse(bytes);
  if (!cache) return;
  const std::vector<LdCacheEntry> ours = {{"libcuda.so.1", "/usr/lib/libcuda.so.1", native_ld_flags(false)},
                                          {"libcuda.so.1", "/usr/lib32/libcuda.so.1", native_ld_flags(true)}};
  cache->put(ours);
  const std::string written = cache->serialize();
  const auto again = LdCache::parse(written);
  if (!again || again->entries != cache->entries || again->hwcaps != cache->hwcaps) std::abort();
  for (const LdCacheEntry& entry : again->entries)
    if (entry.soname == "libcuda.so.1" && entry.arch() == ours[0].arch() && entry != ours[0]) std::abort();
}
