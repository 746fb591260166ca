// prune: images of the node's store that nobody has asked for in a while go.
#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct PruneOptions {
  uint32_t days = 30;
  std::string size;
  bool dry_run = false;
};

Result<int> prune(const Context& context, const PruneOptions& options) {
  constexpr uint64_t kDay = 24 * 3600;  // seconds
  std::vector<std::string> words = {"--unused-for", std::to_string(options.days * kDay)};
  if (!options.size.empty()) {
    TRY_ASSIGN(const uint64_t bytes, parse_size(options.size));
    words.insert(words.end(), {"--to", std::to_string(bytes)});
  }
  if (options.dry_run) words.emplace_back("--dry-run");
  return run_store_program(context, "prune", std::move(words));
}

}  // namespace

void add_prune(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "prune", "Remove unused images from the node's store", prune);
  command.option("--unused-for", options.days, "Only images that nobody has asked for in so many days (default 30)")
      .value("DAYS");
  command.option("--to", options.size, "No more than it takes for the images to have this size, such as 200GiB")
      .value("SIZE");
  command.flag("--dry-run", options.dry_run, "Only say what would go");
}

}  // namespace situla::cli
