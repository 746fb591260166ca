#include <cstdlib>
#include <string>

#include "hooks/store/messages.hpp"
#include "tests/fuzz/target.hpp"

/// What somebody who has taken over an importer could say to the store program, behind the version.
void situla::fuzz(std::string_view bytes) {
  using namespace store_line;
  static const std::string version = encode(Message(Have())).substr(0, sizeof(uint32_t));
  const std::string packet = version + std::string(bytes);
  const auto message = decode(packet);
  // Strict: of each message there is one form.
  if (message && encode(*message) != packet) std::abort();
}
