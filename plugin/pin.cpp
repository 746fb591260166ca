#include "plugin/pin.hpp"

#include <cstdlib>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/process/run_program.hpp"

extern "C" char** environ;

namespace situla {
namespace {

/// A tag of a registry; a digest stands for itself, and other images are the node's or the user's own. None: a
/// container by its name.
bool may_move(const std::string& image) {
  return !image.empty() && image_kind(image) == ImageKind::registry && image.find("@sha256:") == std::string::npos;
}

Result<Digest> ask_registry(const std::string& image, std::chrono::milliseconds limit) {
  constexpr size_t kMaxAnswer = 4096;
  SpawnOptions options;
  options.program = libexec_path("situla-full");
  options.arguments = {"situla", "digest", "--index", "--", image};
  options.environment = Environment::from_envp(environ).strings();
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = limit, .output_bytes = kMaxAnswer}));
  if (!run.success()) return fail(ErrorKind::network, "ask the registry for the digest of " + image);
  return Digest::parse(trim(run.output));
}

}  // namespace

void pin_image(const std::string& image, std::chrono::milliseconds limit) {
  unsetenv(kDigestVariable);
  if (!may_move(image)) return;
  if (const auto digest = ask_registry(image, limit)) setenv(kDigestVariable, digest->text().c_str(), 1);
}

void use_pinned_image(Environment& environment, ContainerSpec& spec) {
  const std::string text = environment.get_or(kDigestVariable, "");
  environment.unset(kDigestVariable);
  if (Digest::parse(text) && may_move(spec.image)) spec.image += "@" + text;
}

}  // namespace situla
