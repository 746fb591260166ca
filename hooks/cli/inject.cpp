// inject: which devices, and what belongs to them, would a container get?
#include <optional>
#include <ostream>

#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/json.hpp"
#include "hooks/bundle/start_options.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/run/launch.hpp"

namespace situla::cli {
namespace {

Json as_json(const MountStep& step) {
  Json document;
  if (step.kind != StepKind::cover) document.add("source", step.source);
  document.add("target", step.target);
  if (step.number) {
    document.add("type", std::string(1, step.number->type));
    document.add("major", step.number->major);
    document.add("minor", step.number->minor);
  }
  if (step.kind == StepKind::host_file) document.add("recursive", step.recursive);
  if (step.kind != StepKind::device) document.add("options", flag_words(step.flags));
  document.add("required", step.on_failure == OnFailure::fail);
  document.add("origin", step.origin);
  return document;
}

Json as_json(const FileChange& file) {
  switch (file.kind) {
    case FileChange::Kind::link:
      return Json::object({{"kind", "link"}, {"path", file.path}, {"target", file.content}});
    case FileChange::Kind::directory:
      return Json::object({{"kind", "directory"}, {"path", file.path}, {"mode", file.mode}});
    case FileChange::Kind::write:
      break;
  }
  return Json::object({{"kind", "file"}, {"path", file.path}, {"mode", file.mode}, {"content", file.content}});
}

Json as_json(const ProgramEdit& program) {
  return Json::object({{"path", program.path},
                       {"arguments", program.arguments},
                       {"environment", program.environment},
                       {"origin", program.origin}});
}

Json as_json(const CachedLibrary& library) {
  return Json::object({{"soname", library.soname}, {"path", library.path}, {"bits", library.is_32bit ? 32 : 64}});
}

template <typename Edit>
Json array_of(const std::vector<Edit>& edits) {
  Json array = Json::list();
  for (const Edit& edit : edits) array.add(as_json(edit));
  return array;
}

Json steps(const ContainerEdits& edits, StepKind kind) {
  Json array = Json::list();
  for (const MountStep& step : edits.mounts)
    if (step.kind == kind) array.add(as_json(step));
  return array;
}

/// Lists are in the order of application; every edit says who asked for it ("origin").
std::string json_report(const ContainerEdits& edits) {
  return to_text(Json::object({{"environment", Json::object_of(edits.environment.entries())},
                               {"covers", steps(edits, StepKind::cover)},
                               {"mounts", steps(edits, StepKind::host_file)},
                               {"devices", steps(edits, StepKind::device)},
                               {"files", array_of(edits.files)},
                               {"programs", array_of(edits.programs)},
                               {"libraries", Json::object({{"files", array_of(edits.libraries.libraries)},
                                                           {"directories", edits.libraries.directories},
                                                           {"preferredDirectories", edits.libraries.preferred}})}}));
}

struct InjectOptions {
  bool dry_run = false, json = false;
  std::vector<std::string> environment;
  std::string devices, root;
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
                    .with_code(ErrorCode::option)
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

void add_inject(Program& program, Actions& actions) {
  const auto [command, options] = add_command(
      program, actions, "inject", "Show which devices a container would get, and what comes with them", inject);
  command.flag("--dry-run", options.dry_run, "Print the plan, and change nothing");
  add_environment_option(command, options.environment);
  command.option("--devices", options.devices, "Devices, named as for srun's --container-devices")
      .value("NAME[,NAME...]");
  command.flag("--json", options.json, "Print one JSON document");
  command
      .option("ROOT", options.root,
              "Container, squashfs file, or directory with a root file system (default: an empty one)")
      .value("");
}

}  // namespace situla::cli
