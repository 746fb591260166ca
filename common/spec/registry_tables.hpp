// How are [[registry]] tables of a TOML file read? For those who parse such files: situla.toml, registries.conf.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/registry_rule.hpp"
#include "common/toml/toml.hpp"

namespace situla {

/// What becomes of a key that is not known: an error in our own file; in a file that belongs to other tools it is
/// theirs.
enum class UnknownKeys { refused, ignored };

/// `tables` is the value of "registry". Errors are ErrorKind::usage, "FILE:LINE: ..."; two tables with one prefix are
/// an error.
Result<std::vector<RegistryRule>> read_registry_tables(const toml::node& tables, const std::string& file,
                                                       UnknownKeys unknown);

/// "host[:port][/path]" as rules are compared, one spelling for each place: the host in lower case, without a dot at
/// its end, without the port where that is 443, and the names of Docker Hub as "docker.io".
std::string normalized_place(std::string_view place);

}  // namespace situla
