#include "hooks/edf/edf.hpp"

#include <cstdlib>

#include "hooks/edf/edf_values.hpp"
#include "tests/fuzz/target.hpp"

void situla::fuzz(std::string_view bytes) {
  edf::EdfReading reading = edf::parse_edf(bytes, "f.toml");
  for (const Error& error : reading.problems)
    if (error.kind() != ErrorKind::usage || !error.message().starts_with("f.toml:")) std::abort();
  if (!reading.problems.empty()) return;
  Environment variables;
  variables.set("HOME", "/home/user");
  const edf::EdfPlaces places{{}, "/work", variables};
  edf::Edf edf;
  edf.combined = std::move(reading.file);
  edf.combined.add(edf.combined);
  if (const auto settled = edf::settle_values(edf.combined, places); !settled) {
    if (!settled.error().message().starts_with("f.toml:")) std::abort();
    return;
  }
  edf.warnings = edf::unheeded(edf.combined);
  const ResolvedEnvironment resolved = edf::options_of(edf);
  const auto text = resolved.to_text();
  if (!text) return;
  const auto read = ResolvedEnvironment::from_text(*text);
  if (!read || *read != resolved) std::abort();
  ContainerSpec spec;
  // What was checked on the client is right on the node.
  if (!read->apply(spec)) std::abort();
  if (ContainerSpec::deserialize(spec.serialize()) != spec) std::abort();
}
