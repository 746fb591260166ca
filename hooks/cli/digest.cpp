// digest: what a reference means now, as the digest of the manifest.
#include <ostream>

#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/import/import.hpp"

namespace situla::cli {
namespace {

struct DigestOptions : ImageArguments {
  bool index = false;
};

Result<int> digest(const Context& context, const DigestOptions& options) {
  const KeepSecrets secrets;
  TRY(options.check_name("digest", "for a squashfs file: " + context.invocation.program + " inspect FILE"));
  TRY_ASSIGN(const ImportRequest request, options.request(context));
  TRY_ASSIGN(const ReferenceDigests digests, resolve_digests(request, context.log));
  context.streams.out << (options.index ? digests.index : digests.manifest).text() << '\n';
  return 0;
}

}  // namespace

void add_digest(CLI::App& app, Actions& actions) {
  const auto [command, options] =
      add_command(app, actions, "digest", "Print the digest of an image's manifest", digest);
  options.declare(command, "URI",
                  "[docker://][USER@][REGISTRY#]IMAGE[:TAG][@DIGEST], or any other image that import takes");
  command.add_flag("--index", options.index, "The digest for all architectures: of the index, where the image has one");
}

}  // namespace situla::cli
