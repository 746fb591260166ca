#include "hooks/request/registries_conf.hpp"

#include <array>
#include <cstdlib>

#include "hooks/request/mirrors.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

void check_endpoints(const ImageReference& reference, const std::vector<RegistryRule>& rules) {
  const auto endpoints = endpoints_of(reference, rules);
  if (!endpoints) return;
  if (endpoints->empty()) std::abort();
  for (const RegistryEndpoint& endpoint : *endpoints) {
    // A login that the user named for one host is for no other one.
    const bool same = endpoint.reference.registry == reference.registry;
    if (endpoint.stands_in == same || (!same && !endpoint.reference.user.empty())) std::abort();
    // A mirror gives the same image, or one that somebody has named the same.
    if (endpoint.reference.digest != reference.digest && endpoint.reference.digest) std::abort();
    const auto again = ImageReference::parse("docker://" + endpoint.reference.registry + "#" +
                                             endpoint.reference.repository + "@" + Digest().text());
    if (!again || again->registry != endpoint.reference.registry) std::abort();
  }
}

}  // namespace

/// What podman's file says, and where images are asked for then.
void situla::fuzz(std::string_view bytes) {
  const auto rules = parse_registries_conf(bytes, "registries.conf");
  if (!rules) return;
  static const std::array<ImageReference, 3> references = {
      *ImageReference::parse("user@registry.test:5000#team/image:1.0"), *ImageReference::parse("ubuntu"),
      *ImageReference::parse("a.b.example.com/x@" + Digest().text())};
  for (const ImageReference& reference : references) check_endpoints(reference, *rules);
}
