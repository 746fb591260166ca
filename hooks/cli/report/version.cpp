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

void add_version(CLI::App& app, Actions& actions) {
  (void)add_command(app, actions, "version", "Print the version", version);
}

}  // namespace situla::cli
