#include "hooks/import/layer_index.hpp"

#include <cstdlib>

#include "hooks/registry/sha256.hpp"
#include "tests/fuzz/target.hpp"

/// What an earlier import says of a layer, without the digest at its end, which everybody can make.
void situla::fuzz(std::string_view bytes) {
  const auto index = LayerIndex::parse(std::string(bytes) + digest_of(bytes).hex());
  if (!index) return;
  std::string written;
  LayerIndexWriter writer(index->head(), [&](std::string_view piece) -> Result<void> {
    written += piece;
    return {};
  });
  size_t entries = 0;
  if (!index->for_each([&](IndexedEntry& entry) -> Result<void> {
        ++entries;
        return writer.add(entry);
      }))
    return;
  if (!writer.finish()) std::abort();
  // What is written again says the same, if maybe in fewer bytes.
  const auto again = LayerIndex::parse(written);
  size_t found = 0;
  if (!again || !again->for_each([&](IndexedEntry&) -> Result<void> {
        ++found;
        return {};
      }))
    std::abort();
  if (found != entries || again->head().donor != index->head().donor || !(again->head().seen == index->head().seen))
    std::abort();
}
