#include <cstdlib>
#include <string>

#include "hooks/request/credentials.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

Result<std::string> unchanged(const std::string& password) {
  if (!password.starts_with('$')) std::abort();
  return password;
}

std::string quoted(std::string_view word) {
  std::string text = "\"";
  for (const char c : word) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

}  // namespace

/// A user's file of logins. Nothing of it is run here.
void situla::fuzz(std::string_view bytes) {
  NullLog log;
  (void)parse_token_servers(bytes);
  const auto set = parse_credentials(bytes, ".credentials", unchanged, log);
  if (!set) {
    if (set.error().kind() != ErrorKind::usage) std::abort();
    return;
  }
  std::string written;
  for (const Credential& each : set->all()) {
    if (each.host.empty() || each.scope != Credential::Scope::host || each.identity_token) std::abort();
    if (set->find(each.host, each.login) == nullptr || set->find_registry(each.host, "") != nullptr) std::abort();
    written += "machine " + quoted(each.host) + " login " + quoted(each.login) + "\n  password " +
               quoted(each.password) + "\n";
  }
  const auto again = parse_credentials(written, ".credentials", unchanged, log);
  if (!again || again->all() != set->all()) std::abort();
}
