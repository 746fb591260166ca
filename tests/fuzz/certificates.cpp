#include "hooks/request/certificates.hpp"

#include <cstdlib>

#include "hooks/registry/trust_store.hpp"
#include "tests/fuzz/target.hpp"

/// A user's CA certificates, a PEM file.
void situla::fuzz(std::string_view bytes) {
  const TrustStore store(bytes);
  for (const TrustStore::Certificate& each : store.certificates()) {
    if (each.subject > each.der.size() || each.subject_size > each.der.size() - each.subject) std::abort();
    if (each.subject_name().size() < 2 || each.subject_name().front() != '\x30') std::abort();
  }
  const auto canonical = canonical_certificates(bytes);
  if (!canonical) return;
  if (canonical_certificates(*canonical) != *canonical) std::abort();
  // Nobody who reads it sees more certificates than are in it, each once.
  if (TrustStore(*canonical).certificates().size() > store.certificates().size()) std::abort();
}
