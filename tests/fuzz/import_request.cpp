#include <cstdlib>
#include <string>

#include "hooks/request/request.hpp"
#include "tests/fuzz/target.hpp"

/// What the request writer, a process of the user, sends to the store program; behind the version.
void situla::fuzz(std::string_view bytes) {
  static const std::string version = ImportRequest().serialize().value().substr(0, sizeof(uint32_t));
  const std::string packet = version + std::string(bytes);
  const auto request = ImportRequest::deserialize(packet);
  if (!request) return;
  // Strict: of each request there is one form. It may have more logins than are ever sent.
  const auto written = request->serialize();
  if (written && *written != packet) std::abort();
}
