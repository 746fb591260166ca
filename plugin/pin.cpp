#include "plugin/pin.hpp"

#include <cstdlib>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/resolve_rule.hpp"
#include "common/sys/process/run_program.hpp"

extern "C" char** environ;

namespace situla {
namespace {

/// A tag of a registry; a digest stands for itself, and other images are the node's or the user's own. None: a
/// container by its name.
bool may_move(const std::string& image) {
  return !image.empty() && image_kind(image) == ImageKind::registry && image.find("@sha256:") == std::string::npos;
}

/// The first line of the answer is a digest, a second one what the name means by now.
Result<std::string> ask(const PinnedStep& step, std::chrono::milliseconds limit) {
  constexpr size_t kMaxAnswer = 4096;
  SpawnOptions options;
  options.program = libexec_path("situla-full");
  options.arguments = {"situla", "digest", "--index", "--job", std::to_string(step.job)};
  if (!step.resolve.empty()) options.arguments.insert(options.arguments.end(), {"--resolve", step.resolve});
  options.arguments.insert(options.arguments.end(), {"--", step.image});
  options.environment = Environment::from_envp(environ).strings();
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = limit, .output_bytes = kMaxAnswer}));
  if (!run.success()) return fail(ErrorKind::network, "ask the registry for the digest of " + step.image);
  return run.output;
}

}  // namespace

std::string pin_image(const PinnedStep& step, std::chrono::milliseconds limit) {
  unsetenv(kDigestVariable);
  if (!may_move(step.image)) return "";
  const auto answer = ask(step, limit);
  const auto lines = split_nonempty(answer ? std::string_view(*answer) : std::string_view(), '\n');
  const auto digest = lines.empty() ? fail(ErrorKind::network, "") : Digest::parse(lines[0]);
  if (!digest) return "";
  setenv(kDigestVariable, digest->text().c_str(), 1);
  const auto moved = lines.size() < 2 ? fail(ErrorKind::not_found, "") : Digest::parse(lines[1]);
  if (!moved) return "";
  return printable(step.image) + has_moved(*moved, *digest);
}

void use_pinned_image(Environment& environment, ContainerSpec& spec) {
  const std::string text = environment.get_or(kDigestVariable, "");
  environment.unset(kDigestVariable);
  if (Digest::parse(text) && may_move(spec.image)) spec.pinned = text;
}

}  // namespace situla
