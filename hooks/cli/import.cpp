// import: an image from a registry, files or an engine becomes a squashfs file of the user.
#include "hooks/import/import.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/node_store.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla::cli {
namespace {

struct ImportOptions : ImageArguments {
  std::string output, trace;
};

bool is_something_else_than_a_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

/// A place that cannot be written to is known before anything is fetched.
Result<void> check_trace_file(const std::string& path) {
  if (is_something_else_than_a_file(path)) {
    if (access(path.c_str(), W_OK) != 0) return fail_errno(errno, "open " + path);
    return {};
  }
  const std::string directory = split_path(path).first;
  if (access(directory.c_str(), W_OK | X_OK) != 0) return fail_errno(errno, "create " + path);
  return {};
}

/// A file is replaced when all of it is there; a terminal, a pipe or the like is written to.
Result<void> write_trace(const std::string& path, const std::string& text) {
  if (!is_something_else_than_a_file(path)) return write_file_atomically(path, text, less_umask(0666));
  TRY_ASSIGN(const UniqueFd stream, open_file(path, O_WRONLY));
  TRY_CONTEXT("write " + path, write_all(stream.get(), text));
  return {};
}

Result<int> import(const Context& context, const ImportOptions& options) {
  const KeepSecrets secrets;
  remove_parts_when_interrupted();
  TRY(options.check_name("import",
                         "a squashfs file is used as it is: create and start take its path; an image in "
                         "other files is oci:DIR, oci-archive:FILE, docker-archive:FILE or dir:DIR"));
  std::string output = options.output;
  if (output.empty()) {
    TRY_ASSIGN(output, default_file_name(options.image));
  }
  output = followed(output);
  TRY_ASSIGN(const ImportRequest request, options.request(context));
  const std::unique_ptr<Progress> progress = make_progress(context.streams.terminal, context.log);
  const std::string cache = user_layer_cache(context.config);
  NodeStore store(context);
  if (options.trace.empty()) {
    TRY(import_to_file(request, output, cache, *progress, context.log, nullptr, &store));
    return 0;
  }
  TRY(check_trace_file(options.trace));
  Trace trace;
  const auto imported = import_to_file(request, output, cache, *progress, context.log, &trace, &store);
  if (trace.dropped() > 0)
    context.log.warning(options.trace + ": " + std::to_string(trace.dropped()) + " spans did not fit");
  auto written = write_trace(options.trace, trace.json());
  TRY(imported);
  TRY(written);
  return 0;
}

}  // namespace

void add_import(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "import", "Convert an image to a squashfs file", import);
  options.declare(command, "URI",
                  "[docker://][USER@][REGISTRY#]IMAGE[:TAG][@DIGEST], dockerd://IMAGE, podman://IMAGE, oci:DIR[:TAG], "
                  "oci-archive:FILE[:TAG], docker-archive:FILE[:TAG] or dir:DIR");
  command.option("-o,--output", options.output, "Name of the file (default: IMAGE+TAG.sqsh)").value("FILE");
  command.option("--trace", options.trace, "File for a Chrome trace of where the time went").value("FILE");
  command.footer(
      "Logins are looked for in this order: $ENROOT_CONFIG_PATH/.credentials (lines 'machine HOST login USER password "
      "PASSWORD'), $REGISTRY_AUTH_FILE, $XDG_RUNTIME_DIR/containers/auth.json, ~/.config/containers/auth.json, "
      "$DOCKER_CONFIG/config.json (each with its credential helpers); then the registry is asked without one. Mirrors "
      "and blocked registries are those of situla.toml and registries.conf(5).");
}

}  // namespace situla::cli
