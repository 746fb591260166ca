// create: a squashfs file becomes a container under ENROOT_DATA_PATH.
#include <filesystem>

#include <fcntl.h>

#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct CreateOptions {
  std::string name, image;
  bool force = false, extract = false;
};

std::string default_name(const std::string& image) {
  std::string name = std::filesystem::path(image).filename().string();
  for (const std::string_view suffix : {".sqsh", ".squashfs"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

Result<int> create(const Context& context, const CreateOptions& options) {
  const Result<UniqueFd> image = open_file(options.image, O_RDONLY);
  if (!image && image.error().kind() == ErrorKind::not_found) return fail(no_such_image(options.image));
  if (!image) return fail(image.error());
  const std::string name = options.name.empty() ? default_name(options.image) : options.name;
  TRY_ASSIGN(NewContainer request, new_container(context, name, options.force, options.extract));
  request.image = image->get();
  request.origin = full_image_name("./" + options.image, {}, current_directory());
  TRY_CONTEXT("create a container of " + options.image, create_container(context.config, request, context.log));
  return 0;
}

}  // namespace

Result<NewContainer> new_container(const Context& context, const std::string& name, bool force, bool extract) {
  NewContainer request;
  TRY_ASSIGN(request.path, container_path(context.config, name));
  request.replace = force || context.config.flag("ENROOT_FORCE_OVERRIDE");
  TRY(check_new_container(request.path, request.replace));
  request.owners = owners_wish(context.invocation.environment, context.config.flag("ENROOT_REMAP_ROOT"));
  request.wish = StorageWish::tree;
  if (!extract) {
    TRY_ASSIGN(request.wish, storage_wish(context.invocation.environment, context.log));
  }
  return request;
}

void add_create(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "create", "Make a container of a squashfs file", create);
  command.option("-n,--name", options.name, "Name of the container (default: the file's, without .sqsh)").value("NAME");
  command.flag("-f,--force", options.force, "Replace an existing container");
  command.flag("--extract", options.extract,
               "Make a directory tree, not layers over a copy of the file (also: SITULA_CREATE=tree)");
  command.option("IMAGE", options.image, "Squashfs file").value("").required();
}

}  // namespace situla::cli
