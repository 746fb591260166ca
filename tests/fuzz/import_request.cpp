#include <cstdlib>
#include <string>

#include "hooks/import/request.hpp"
#include "tests/fuzz/target.hpp"

/// What the request writer, a process of the user, sends to the store program; behind the mark and the version.
void situla::fuzz(std::string_view bytes) {
  constexpr size_t kHead = 2 * sizeof(uint32_t);
  static const std::string head = ImportRequest().serialize().value().substr(0, kHead);
  const auto request = ImportRequest::deserialize(head + std::string(bytes));
  if (!request) return;
  // What was understood is written as something that is understood in the same way. Flags may have had other bytes.
  const auto written = request->serialize();
  if (!written) std::abort();
  const auto again = ImportRequest::deserialize(*written);
  if (!again || again->serialize().value() != *written) std::abort();
}
