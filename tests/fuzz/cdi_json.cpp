#include "hooks/inject/cdi/spec.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  if (bytes.size() > cdi::kMostDocumentBytes) return;
  if (const auto document = cdi::read_json(bytes)) (void)cdi::make_spec(*document, "json");
}
