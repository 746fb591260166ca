// load: an image from a registry, files or an engine becomes a container, without a squashfs file of the user's in
// between.
#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

struct LoadOptions : ImageArguments {
  std::string name;
  bool force = false, extract = false;
};

Result<int> load(const Context& context, const LoadOptions& options) {
  TRY(options.check_name("load", "'create' makes a container of a squashfs file"));
  std::string name = options.name;
  if (name.empty()) {
    TRY_ASSIGN(name, default_file_name(options.image));
    name.resize(name.size() - std::string_view(".sqsh").size());
  }
  // Before anything is fetched.
  TRY_ASSIGN(NewContainer request, new_container(context, name, options.force, options.extract));
  // A layered container keeps the file itself, so it lies where that will be.
  TRY_ASSIGN(const bool layered, makes_layers(context.config, request.wish, context.log));
  TRY_ASSIGN(const UnnamedImage image,
             fetch_image(context, options, layered ? context.config.data_path() : context.config.temp_path()));
  request.image = image.file.get();
  request.image_is_ours = true;
  request.origin = full_image_name(options.image, {}, current_directory());
  TRY_CONTEXT("create a container of " + printable(options.image),
              create_container(context.config, request, context.log));
  return 0;
}

}  // namespace

void add_load(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "load", "Convert an image to a container", load);
  options.declare(command, "URI", "Image, as for import");
  command.option("-n,--name", options.name, "Name of the container (default: IMAGE+TAG)").value("NAME");
  command.flag("-f,--force", options.force, "Replace an existing container");
  command.flag("--extract", options.extract, "Make a directory tree (also: SITULA_CREATE=tree)");
}

}  // namespace situla::cli
