#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {

void ImageArguments::declare(CLI::App& command, const std::string& name, const std::string& meaning) {
  command.add_option("-a,--arch", architecture, "Architecture of the image (default: this machine's)")
      ->type_name("ARCH");
  command.add_option(name, image, meaning)->type_name("")->required();
}

Result<void> ImageArguments::check_name(const std::string& command, const std::string& hint) const {
  if (image_kind(image) != ImageKind::path) return {};
  return fail(Error(ErrorKind::usage, command + " " + printable(image) + ": not the name of an image").with_hint(hint));
}

Result<ImportRequest> ImageArguments::request(const Context& context) const {
  const Environment& environment = context.invocation.environment;
  return make_import_request(image, context.config, environment, RuleFiles::of_user(environment), context.log,
                             architecture);
}

}  // namespace situla::cli
