#include "common/spec/environment.hpp"

#include <cstdlib>
#include <string>

#include "hooks/mount/fstab.hpp"
#include "hooks/scripts/definitions.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using situla::Environment;

void check_entries(const Environment& environment) {
  const auto& entries = environment.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, value] = entries[i];
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos) std::abort();
    if (value.find('\0') != std::string::npos) std::abort();
    if (environment.get(name) != value) std::abort();  // no name twice
  }
}

/// ENROOT_* of a file could turn the launcher's own settings.
void check_definitions(const Environment& environment) {
  check_entries(environment);
  for (const auto& [name, value] : environment.entries())
    if (!situla::is_variable_name(name) || name.starts_with("ENROOT_")) std::abort();
}

}  // namespace

/// A task's environment as it is sent, environment files of images, sites and scripts, and text with variables in it.
void situla::fuzz(std::string_view bytes) {
  const Environment environment = Environment::from_block(bytes);
  check_entries(environment);
  if (Environment::from_block(environment.block()).entries() != environment.entries()) std::abort();
  (void)expand_variables(bytes, environment);

  Environment expanded, literal;
  add_definitions(expanded, bytes, environment);
  check_definitions(expanded);
  add_literal_definitions(literal, bytes);
  check_definitions(literal);
  // A script that adds nothing changes nothing.
  const Environment after = definitions_taken_back(definitions_text(literal), literal);
  if (after.entries().size() != literal.entries().size()) std::abort();
  for (const auto& [name, value] : literal.entries())
    if (after.get(name) != value) std::abort();
  check_entries(definitions_taken_back(bytes, environment));
}
