// start: a container, or a squashfs file as it is, runs a command for the user who asks.
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "hooks/bundle/start_options.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/edf/edf.hpp"
#include "hooks/run/launch.hpp"
#include "hooks/run/mounted_images.hpp"
#include "hooks/scripts/config_script.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla::cli {
namespace {

constexpr std::string_view kDescriptors = "/proc/self/fd/";

/// One line for each change that the start would make.
Result<int> show_plan(const Context& context, ContainerRequest request) {
  TRY_ASSIGN(const auto parts, plan_start(std::move(request), HookUse::command, context.log));
  for (const ContainerEdits& part : parts) context.streams.out << describe(part);
  return 0;
}

/// Of a start that has fetched them: `fetched` as of StartCommand.
Result<void> take_images(const std::vector<std::string>& fetched, ContainerRequest& request) {
  for (const std::string& word : fetched) {
    const size_t sign = word.rfind('=');
    const std::string number = sign == std::string::npos ? "?" : word.substr(sign + 1);
    ImagePlace place;
    if (!number.empty()) {
      const auto fd = parse_unsigned(number);
      if (!fd || *fd <= STDERR_FILENO || fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC) != 0)
        return fail(Error(ErrorKind::usage, std::string(kFetchedOption) + " " + printable(word) + ": no open file")
                        .with_code(ErrorCode::option));
      place.file = std::make_shared<const UniqueFd>(static_cast<int>(*fd));
    }
    request.mounted_images.emplace(word.substr(0, sign), std::move(place));
  }
  return {};
}

}  // namespace

Result<int> start_words(const Context& context, const StartCommand& options, const std::vector<std::string>& words) {
  TRY_ASSIGN(EnrootConfig config, with_directives(context.config, options.start.configuration, context.log));
  ContainerSpec spec;
  if (!options.environment.empty()) {
    TRY_ASSIGN(const edf::Edf edf, load_edf(options.environment, edf_places(context)));
    for (const std::string& warning : edf.warnings) context.log.warning(printable(warning));
    TRY_CONTEXT("--environment", options_of(edf).apply(spec));
  }
  ContainerRequest request = ContainerRequest::of_start(options.start, context.invocation.environment,
                                                        std::move(config), context.log, std::move(spec));
  TRY(take_images(options.fetched, request));
  const Context configured{context.invocation, context.streams, context.log, request.config, words};
  if (!options.dry_run) {
    TRY_ASSIGN(std::vector<WantedImage> images,
               wanted_images(request.config, request.host, request.spec.mounts, request.start.mounts));
    std::erase_if(images, [&](const WantedImage& each) { return request.mounted_images.contains(each.reference); });
    if (!images.empty()) {
      // A name that is none is said before minutes have gone by.
      if (!words.front().starts_with(kDescriptors)) TRY(find_root(configured, words.front()));
      return fail(fetch_first(context, {"", std::move(images)}));
    }
  }
  // A directive may name another ENROOT_DATA_PATH.
  TRY_ASSIGN(request.root, find_root(configured, words.front()));
  request.command.assign(words.begin() + 1, words.end());
  if (options.dry_run) return show_plan(context, std::move(request));
  context.streams.out.flush();
  return start_container(std::move(request), context.log);
}

namespace {

/// "docker://...", "oci:...": neither a path nor the name of a container.
bool says_where(const std::string& word) {
  const ImageKind kind = image_kind(word);
  return word.find("://") != std::string::npos || (kind != ImageKind::path && kind != ImageKind::registry);
}

Result<int> start(const Context& context, const StartCommand& options) {
  TRY(check_words(context, "start", 1, "NAME or IMAGE is"));
  if (says_where(context.words.front())) return fail(fetch_first(context, {context.words.front(), {}}));
  return start_words(context, options, context.words);
}

}  // namespace

void add_fetched_option(const Command& command, std::vector<std::string>& fetched) {
  command.option(kFetchedOption, fetched).hidden().one_at_a_time();  // between us and ourselves
}

void declare_start(const Command& command, StartCommand& options) {
  command.pass_words_on();  // what follows the name belongs to the container
  add_start_options(command, options.start,
                    "Configuration script: lines #ENROOT_KEY=value, and functions environ, mounts, hooks, rc");
  command
      .option("--environment", options.environment,
              "Environment file: variables, mounts, directory and more; other options win over it")
      .value("NAME|FILE");
  add_fetched_option(command, options.fetched);
  command.flag("--dry-run", options.dry_run, "Print what would be mounted and changed, and start nothing");
  Isolation& isolation = options.start.isolation;
  command.flag("--pid", isolation.pid, "Own PID namespace");
  command.flag("--net", isolation.net, "Own network namespace");
  command.flag("--ipc", isolation.ipc, "Own IPC namespace");
  command.flag("--uts", isolation.uts, "Own UTS namespace");
}

Result<void> check_words(const Context& context, const std::string& command, size_t needed,
                         const std::string& missing) {
  if (context.words.size() >= needed) return {};
  return fail(Error(ErrorKind::usage, command + ": " + missing + " required")
                  .with_code(ErrorCode::option)
                  .with_hint(context.invocation.program + " " + command + " --help"));
}

Error no_such_file(const std::string& path) {
  return {ErrorKind::not_found, "No such file or directory: " + path};
}

Error no_such_image(const std::string& path) {
  Error error = no_such_file(path).with_code(ErrorCode::image_not_found);
  const std::string similar = similar_image(path);
  if (!similar.empty())
    error.with_code(ErrorCode::image_not_found).with_hint("did you mean " + printable(similar) + "?");
  return error;
}

namespace {

/// What srun's --container-name puts in front (COMPAT.md 1).
constexpr std::string_view kOfSrun = "pyxis_";

/// Empty: none has almost that name.
std::string similar_container(const EnrootConfig& config, const std::string& name) {
  const auto containers = list_containers(config);
  if (!containers) return {};
  std::vector<std::string_view> names;
  for (const NamedContainer& container : *containers) {
    if (container.name == std::string(kOfSrun) + name) return container.name;
    names.push_back(container.name);
  }
  return std::string(closest(name, names).value_or(""));
}

Error no_container_but(const Context& context, Error error, const std::string& meant) {
  const bool of_srun = meant.starts_with(kOfSrun);
  const std::string which =
      of_srun ? ", which is --container-name=" + printable(meant.substr(kOfSrun.size())) + " of srun" : "";
  const std::string question = meant.empty() ? "" : "did you mean " + printable(meant) + which + "? ";
  return std::move(error)
      .with_code(ErrorCode::container_not_found)
      .with_hint(question + context.invocation.program + " list shows the containers there are");
}

}  // namespace

Result<NamedContainer> find_meant_container(const Context& context, const std::string& name) {
  auto found = find_container(context.config, name);
  if (found || found.error().kind() != ErrorKind::not_found) return found;
  return fail(no_container_but(context, std::move(found).error(), similar_container(context.config, name)));
}

Error fetch_first(const Context& context, const WantedFetch& wanted) {
  if (context.start_fetched != nullptr) return context.start_fetched(context, wanted);
  return become_full_program(context.invocation.program, context.invocation.arguments);
}

Result<RootSource> find_root(const Context& context, const std::string& word) {
  struct stat status {};
  if (stat(word.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    auto opened = open_file(word, O_RDONLY);
    // A container's name is meant where the file that has it, too, is no image.
    const auto beside =
        word.find('/') == std::string::npos ? find_container(context.config, word) : fail(ErrorKind::not_found, "");
    if (beside && (!opened || !read_image_info(opened->get()))) return RootSource::of(*beside);
    TRY_ASSIGN(UniqueFd image, std::move(opened));
    // It is open twice otherwise, and the other one is no container's business.
    const auto fd = word.starts_with(kDescriptors) ? parse_unsigned(word.substr(kDescriptors.size())) : std::nullopt;
    if (fd && *fd > STDERR_FILENO) const UniqueFd given(static_cast<int>(*fd));
    // Without a helper that has privilege the kernel mounts nothing.
    const MountKind mount = load_site_config(context.log).mount;
    return RootSource{RootSource::Kind::image, word, std::move(image),
                      mount == MountKind::kernel ? MountKind::automatic : mount};
  }
  if (word.find('/') != std::string::npos) return fail(no_such_image(word));
  auto container = find_container(context.config, word);
  if (container) return RootSource::of(*container);
  if (container.error().kind() != ErrorKind::not_found) return fail(std::move(container).error());
  const std::string file = similar_image(word), near = similar_container(context.config, word);
  const bool means_file = !file.empty() && (near.empty() || word.ends_with(".sqsh"));
  return fail(no_container_but(context, std::move(container).error(), means_file ? file : near));
}

Result<int> start_configured(const Context& context, const std::string& script, const std::vector<std::string>& words,
                             const std::vector<std::string>& fetched) {
  StartCommand options;
  options.fetched = fetched;
  options.start.configuration = script;
  return start_words(context, options, words);
}

void add_start(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "start",
                  "Run a command in a container or in an image: start [OPTIONS] NAME|IMAGE [COMMAND [ARG...]]", start);
  declare_start(command, options);
}

}  // namespace situla::cli
