// start: a container, or a squashfs file as it is, runs a command for the user who asks.
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/run/launch.hpp"
#include "hooks/scripts/config_script.hpp"

namespace situla::cli {
namespace {

/// One line for each change that the start would make.
Result<int> show_plan(const Context& context, ContainerRequest request) {
  TRY_ASSIGN(const auto parts, plan_start(std::move(request), HookUse::command, context.log));
  for (const ContainerEdits& part : parts) context.streams.out << describe(part);
  return 0;
}

Result<int> start(const Context& context, const StartOptions& options, std::vector<std::string> words,
                  bool dry_run = false) {
  const std::string help = context.invocation.program + " start --help";
  if (!words.empty() && words.front() == "--") words.erase(words.begin());
  if (words.empty()) return fail(Error(ErrorKind::usage, "start: NAME or IMAGE is required").with_hint(help));
  if (words.front().starts_with('-'))
    return fail(Error(ErrorKind::usage, "start: unknown option " + printable(words.front())).with_hint(help));
  TRY_ASSIGN(EnrootConfig config, with_directives(context.config, options.configuration, context.log));
  // A directive may name another ENROOT_DATA_PATH.
  TRY_ASSIGN(RootSource root, find_root({context.invocation, context.streams, context.log, config}, words.front()));
  ContainerRequest request =
      ContainerRequest::of_start(options, context.invocation.environment, std::move(config), context.log);
  request.root = std::move(root);
  request.command.assign(words.begin() + 1, words.end());
  if (dry_run) return show_plan(context, std::move(request));
  context.streams.out.flush();
  return start_container(std::move(request), context.log);
}

}  // namespace

Result<RootSource> find_root(const Context& context, const std::string& word) {
  struct stat status {};
  if (stat(word.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    TRY_ASSIGN(UniqueFd image, open_file(word, O_RDONLY));
    // Without a helper that has privilege the kernel mounts nothing.
    const MountKind mount = load_site_config(context.log).mount;
    return RootSource{RootSource::Kind::image, word, std::move(image),
                      mount == MountKind::kernel ? MountKind::automatic : mount};
  }
  if (word.find('/') != std::string::npos) return fail(no_such_file(word));
  auto container = find_container(context.config, word);
  if (!container && container.error().kind() == ErrorKind::not_found)
    container.error().with_hint(context.invocation.program + " list shows the containers there are");
  if (!container) return fail(container.error());
  return RootSource::of(*container);
}

Result<int> start_configured(const Context& context, const std::string& script, std::vector<std::string> words) {
  StartOptions options;
  options.configuration = script;
  return start(context, options, std::move(words));
}

void add_start(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand(
      "start", "Run a command in a container or in a squashfs file: start [OPTIONS] NAME|IMAGE [COMMAND [ARG...]]");
  auto options = std::make_shared<StartOptions>();
  auto dry_run = std::make_shared<bool>(false);
  command->prefix_command();  // what follows the name belongs to the container
  command
      ->add_option("-c,--conf", options->configuration,
                   "Configuration script: lines #ENROOT_KEY=value, and functions environ, mounts, hooks, rc")
      ->type_name("FILE");
  command
      ->add_option("-e,--env", options->environment,
                   "Set a variable in the container; without a value, to the caller's")
      ->type_name("KEY[=VALUE]")
      ->allow_extra_args(false);
  command->add_option("-m,--mount", options->mounts, "Mount something: the fields of an fstab line")
      ->type_name("SRC:DST[:TYPE[:OPTIONS]]")
      ->allow_extra_args(false);
  command->add_option("--rc", options->rc, "Script that runs in place of the image's /etc/rc")->type_name("FILE");
  command->add_flag("--dry-run", *dry_run, "Print what would be mounted and changed, and start nothing");
  command->add_flag("-r,--root", options->root, "Be root inside");
  command->add_flag("-w,--rw", options->writable, "Make the root file system writable");
  command->add_flag("--pid", options->isolation.pid, "Own PID namespace");
  command->add_flag("--net", options->isolation.net, "Own network namespace");
  command->add_flag("--ipc", options->isolation.ipc, "Own IPC namespace");
  command->add_flag("--uts", options->isolation.uts, "Own UTS namespace");
  actions["start"] = [options, dry_run, command](const Context& context) {
    return start(context, *options, command->remaining(), *dry_run);
  };
}

}  // namespace situla::cli
