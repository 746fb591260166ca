// inject: which devices, and what belongs to them, would a container get?
#include <memory>
#include <optional>
#include <ostream>

#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/inject_report.hpp"
#include "hooks/run/launch.hpp"

namespace situla::cli {
namespace {

struct InjectOptions {
  bool dry_run = false;
  bool json = false;
  std::vector<std::string> environment;
  std::string devices;
  std::string root;
};

/// A directory is a root file system, wherever it lies; otherwise as for start.
Result<RootSource> find_root_or_directory(const Context& context, const std::string& word) {
  struct stat status {};
  const bool path = word.find('/') != std::string::npos || word == "." || word == "..";
  if (!path || stat(word.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return find_root(context, word);
  return RootSource{RootSource::Kind::directory, word, UniqueFd(), MountKind::automatic};
}

Result<int> inject(const Context& context, const InjectOptions& options) {
  if (!options.dry_run)
    return fail(Error(ErrorKind::usage, "inject: devices come into a container when it starts, and not before")
                    .with_hint(context.invocation.program +
                               " inject --dry-run shows what that would be; start and srun do it"));
  ContainerSpec spec;
  if (!options.devices.empty()) {
    TRY_ASSIGN(spec.devices, parse_device_names(options.devices));
  }
  RootSource root;
  root.kind = RootSource::Kind::empty;
  if (!options.root.empty()) {
    TRY_ASSIGN(root, find_root_or_directory(context, options.root));
  }
  ContainerRequest request =
      ContainerRequest::of_this_user(std::move(spec), context.invocation.environment, context.config, context.log);
  request.root = std::move(root);
  request.start.environment = options.environment;
  TRY_ASSIGN(std::vector<ContainerEdits> parts, plan_start(std::move(request), HookUse::devices, context.log));
  ContainerEdits edits;
  for (ContainerEdits& part : parts) append(edits, std::move(part));
  context.streams.out << (options.json ? json_report(edits) : describe(edits));
  if (edits.empty() && !options.json)
    context.log.info("nothing would be injected: no variable and no option asks for a device of this node");
  return 0;
}

}  // namespace

void add_inject(CLI::App& app, Actions& actions) {
  CLI::App* command =
      app.add_subcommand("inject", "Show which devices a container would get, and what comes with them");
  auto options = std::make_shared<InjectOptions>();
  command->add_flag("--dry-run", options->dry_run, "Print the plan, and change nothing");
  command
      ->add_option("-e,--env", options->environment,
                   "Set a variable in the container; without a value, to the caller's")
      ->type_name("KEY[=VALUE]")
      ->allow_extra_args(false);
  command->add_option("--devices", options->devices, "Devices, named as for srun's --container-devices")
      ->type_name("NAME[,NAME...]");
  command->add_flag("--json", options->json, "Print one JSON document");
  command
      ->add_option("ROOT", options->root,
                   "Container, squashfs file, or directory with a root file system (default: an empty one)")
      ->type_name("");
  actions["inject"] = [options](const Context& context) { return inject(context, *options); };
}

}  // namespace situla::cli
