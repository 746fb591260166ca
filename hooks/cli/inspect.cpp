// inspect: what an image is, without fetching or unpacking it.
#include <memory>
#include <ostream>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/inspect_report.hpp"
#include "hooks/request/registries_conf.hpp"

namespace situla::cli {
namespace {

struct InspectOptions {
  std::string architecture;
  std::string image;
  bool json = false;
  bool raw = false;
};

/// A path, or a name that no registry's image is likely to have and that import gives its files.
bool names_file(const std::string& image) {
  return image_kind(image) == ImageKind::path || (image.find("://") == std::string::npos && image.ends_with(".sqsh"));
}

/// Content of a file that an image may have; empty if it has none.
Result<std::string> file_of(int image, const std::string& path) {
  auto content = read_image_file(image, path);
  if (content) return content;
  const ErrorKind kind = content.error().kind();
  const bool none = kind == ErrorKind::not_found || kind == ErrorKind::usage || content.error().errnum() == ENOTDIR;
  if (none) return std::string();
  return content;
}

Result<FileDescription> describe_file(int image, const std::string& path) {
  FileDescription file;
  file.path = path;
  TRY_ASSIGN(file.info, read_image_info(image));
  struct stat status {};
  if (fstat(image, &status) != 0) return fail_errno(errno, "inspect " + path);
  file.file_bytes = static_cast<uint64_t>(status.st_size);
  TRY_ASSIGN(const std::string rc, file_of(image, "/etc/rc"));
  read_provenance(rc, file);
  TRY_ASSIGN(const std::string environment, file_of(image, "/etc/environment"));
  file.environment = meaningful_lines(environment);
  TRY_ASSIGN(const std::string fstab, file_of(image, "/etc/fstab"));
  file.mounts = meaningful_lines(fstab);
  return file;
}

Result<int> inspect_file(const Context& context, const InspectOptions& options) {
  if (options.raw || !options.architecture.empty())
    return fail(ErrorKind::usage, "inspect " + printable(options.image) +
                                      ": --raw and --arch are about images in registries, not about files");
  auto image = open_file(options.image, O_RDONLY | O_NONBLOCK);  // not to wait for a pipe's writer
  if (!image && image.error().kind() == ErrorKind::not_found) return fail(no_such_file(options.image));
  if (!image) return fail(std::move(image).error());
  auto file = describe_file(image->get(), options.image);
  if (!file) return fail(std::move(file).error().with_context("inspect " + printable(options.image)));
  context.streams.out << (options.json ? json_report(*file) : text_report(*file));
  return 0;
}

Result<int> inspect(const Context& context, const InspectOptions& options) {
  if (options.raw && options.json) return fail(ErrorKind::usage, "inspect: --raw and --json exclude each other");
  if (names_file(options.image)) return inspect_file(context, options);
  const KeepSecrets secrets;
  TRY_ASSIGN(
      const ImportRequest request,
      make_import_request(options.image, context.config, context.invocation.environment,
                          RuleFiles::of_user(context.invocation.environment), context.log, options.architecture));
  TRY_ASSIGN(const ImageDescription image, describe_image(request, context.log));
  if (options.raw && image.bytes.empty())
    return fail(ErrorKind::unsupported, "inspect " + printable(options.image) + ": its source has no manifest to show");
  if (options.raw)
    context.streams.out << image.bytes;
  else
    context.streams.out << (options.json ? json_report(image) : text_report(image));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("inspect", "Show what an image in a registry or a squashfs file is");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("-a,--arch", options->architecture, "Architecture of the image (default: this machine's)")
      ->type_name("ARCH");
  command->add_flag("--json", options->json, "Print one JSON document");
  command->add_flag("--raw", options->raw, "Print the manifest as the registry serves it");
  command->add_option("IMAGE", options->image, "As for import, or the path of a squashfs file (FILE.sqsh)")
      ->type_name("")
      ->required();
  actions["inspect"] = [options](const Context& context) { return inspect(context, *options); };
}

}  // namespace situla::cli
