// bundle: a squashfs file becomes one file that runs by itself.
#include "hooks/bundle/bundle.hpp"

#include <filesystem>

#include <sys/stat.h>

#include "hooks/cli/commands.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla::cli {
namespace {

std::string without(std::string name, std::string_view suffix) {
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

Result<int> bundle(const Context& context, const BundleRequest& options) {
  struct stat status {};
  if (stat(options.image.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return fail(no_such_image(options.image));
  remove_parts_when_interrupted();
  BundleRequest request = options;
  while (request.target.size() > 1 && request.target.ends_with('/')) request.target.pop_back();
  if (request.output.empty())
    request.output = without(std::filesystem::path(options.image).filename().string(), ".sqsh") + ".run";
  if (request.target.empty())
    request.target = without(std::filesystem::path(request.output).filename().string(), ".run");
  request.output = followed(request.output);
  request.user_files |= context.config.flag("ENROOT_BUNDLE_ALL");
  request.checksum |= context.config.flag("ENROOT_BUNDLE_CHECKSUM");
  request.replace |= context.config.flag("ENROOT_FORCE_OVERRIDE");
  TRY(make_bundle(request, context.config, context.log));
  return 0;
}

}  // namespace

void add_bundle(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "bundle", "Make a file of an image that runs by itself, anywhere", bundle);
  command.flag("-a,--all", options.user_files, "Include the user's configuration files, not only the site's");
  command.flag("-c,--checksum", options.checksum, "Include a checksum, which every start verifies");
  command.option("-d,--desc", options.description, "Description, for its --help").value("TEXT");
  command.option("-o,--output", options.output, "Name of the file (default: IMAGE.run)").value("FILE");
  command
      .option("-t,--target", options.target,
              "Directory for its --keep (default: the bundle's name, where it is run); $VARIABLES in it are "
              "expanded when it runs")
      .value("DIR");
  command.flag("-f,--force", options.replace, "Replace an existing file");
  command.option("IMAGE", options.image, "Squashfs file").value("").required();
}

}  // namespace situla::cli
