// digest: what a reference means now, as the digest of the manifest.
#include <memory>
#include <ostream>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/import/import.hpp"
#include "hooks/request/registries_conf.hpp"

namespace situla::cli {
namespace {

struct DigestOptions {
  std::string architecture;
  std::string image;
  bool index = false;
};

Result<int> digest(const Context& context, const DigestOptions& options) {
  const KeepSecrets secrets;
  if (image_kind(options.image) == ImageKind::path)
    return fail(Error(ErrorKind::usage, "digest " + printable(options.image) + ": not the name of an image")
                    .with_hint("for a squashfs file: " + context.invocation.program + " inspect FILE"));
  TRY_ASSIGN(
      const ImportRequest request,
      make_import_request(options.image, context.config, context.invocation.environment,
                          RuleFiles::of_user(context.invocation.environment), context.log, options.architecture));
  TRY_ASSIGN(const ReferenceDigests digests, resolve_digests(request, context.log));
  context.streams.out << (options.index ? digests.index : digests.manifest).text() << '\n';
  return 0;
}

}  // namespace

void add_digest(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("digest", "Print the digest of an image's manifest");
  auto options = std::make_shared<DigestOptions>();
  command->add_option("-a,--arch", options->architecture, "Architecture of the image (default: this machine's)")
      ->type_name("ARCH");
  command->add_flag("--index", options->index,
                    "The digest for all architectures: of the index, where the image has one");
  command
      ->add_option("URI", options->image,
                   "[docker://][USER@][REGISTRY#]IMAGE[:TAG][@DIGEST], or any other image that import takes")
      ->type_name("")
      ->required();
  actions["digest"] = [options](const Context& context) { return digest(context, *options); };
}

}  // namespace situla::cli
