#include "plugin/pin.hpp"

#include <cstdlib>

#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

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
  TRY_ASSIGN(const UniqueFd answer, memory_file("situla-digest"));
  SpawnOptions options;
  options.program = libexec_path("situla-full");
  options.arguments = {"situla", "digest", "--index", "--", image};
  options.environment = Environment::from_envp(environ).strings();
  options.fds = {{answer.get(), 1}};
  TRY_ASSIGN(Child child, spawn(options));
  TRY_ASSIGN(const auto status, child.wait_for(limit));
  if (!status || !status->success()) return fail(ErrorKind::network, "ask the registry for the digest of " + image);
  if (lseek(answer.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "read the digest");
  TRY_ASSIGN(const std::string text, read_all(answer.get(), kMaxAnswer));
  return Digest::parse(trim(text));
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
