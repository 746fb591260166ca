// version: what this program is.
#include <ostream>

#include "common/base/parts.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct VersionOptions {};

Result<int> version(const Context& context, const VersionOptions&) {
  const std::string missing = missing_parts();
  if (context.invocation.program == "enroot")
    context.streams.out << kEnrootVersion << '\n';
  else
    context.streams.out << "situla " SITULA_VERSION << (missing.empty() ? "" : "\nbuilt without: " + missing) << '\n';
  return 0;
}

}  // namespace

void add_version(Program& program, Actions& actions) {
  (void)add_command(program, actions, "version", "Print the version", version);
}

}  // namespace situla::cli
