#include "hooks/request/docker_config.hpp"

#include <array>
#include <cstdlib>

#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

Result<std::optional<Credential>> help(const std::string& name, const std::string& server) {
  if (name == "none") return std::nullopt;
  if (name == "broken") return fail(ErrorKind::failure, "the command exited with status 1");
  Credential answer;
  answer.login = name == "token" ? "<token>" : "user";
  answer.password = "secret for " + server;
  return answer;
}

}  // namespace

/// The logins of docker and podman. A helper that a file names is not run here.
void situla::fuzz(std::string_view bytes) {
  static const std::array<RegistryPlace, 3> places = {
      {{"registry-1.docker.io", "library/ubuntu"}, {"registry.test:5000", "team/image"}, {"[2001:db8::1]", "x"}}};
  NullLog log;
  for (const RegistryPlace& place : places) {
    const auto found = find_docker_credential(bytes, "config.json", place, help, log);
    // It is for the very place that was asked about, whatever the file calls it.
    if (found && (found->host != place.authority || found->scope != Credential::Scope::registry)) std::abort();
    if (found && found->password.empty()) std::abort();
  }
}
