#include "hooks/request/docker_config.hpp"

#include <algorithm>

#include <unistd.h>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/json.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/request/user_command.hpp"

namespace situla {
namespace {

constexpr size_t kMaxDockerConfigBytes = size_t{1} << 20U;
/// What docker login writes for Docker Hub, and what helpers know it by.
constexpr std::string_view kHubServer = "https://index.docker.io/v1/";
/// The login that says that the secret is an identity token (docker-credential-helpers).
constexpr std::string_view kTokenLogin = "<token>";

/// "https://index.docker.io/v1/" -> "registry-1.docker.io"; "registry.test/team/" -> "registry.test/team".
std::string normalized_key(std::string_view key) {
  if (const size_t scheme = key.find("://"); scheme != std::string_view::npos) key.remove_prefix(scheme + 3);
  std::string_view host = key.substr(0, key.find('/'));
  std::string_view path = key.substr(host.size());
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path == "/v1" || path == "/v2") path = {};
  if (host == "docker.io" || host == "index.docker.io") host = kDockerHub;
  return to_lower(host) + std::string(path);
}

/// Whether a key names the place or something above it.
bool covers(std::string_view key, const std::string& whole) {
  return whole.starts_with(key) && (whole.size() == key.size() || whole[key.size()] == '/');
}

/// Of an object of the configuration: the longest key that covers the place, as it was written, and its value.
const Json::Member* longest_match(const Json& config, std::string_view name, const RegistryPlace& place) {
  const std::string whole = to_lower(place.authority) + "/" + place.repository;
  const Json::Member* best = nullptr;
  size_t length = 0;
  for (const Json::Member& entry : config.members(name)) {
    const std::string normal = normalized_key(entry.name);
    if (!covers(normal, whole) || normal.size() <= length) continue;
    length = normal.size();
    best = &entry;
  }
  return best;
}

Credential registry_credential(const RegistryPlace& place, std::string login, std::string password) {
  Credential credential{place.authority, std::move(login), std::move(password)};
  credential.scope = Credential::Scope::registry;
  return credential;
}

/// "auth" is base64 of LOGIN:PASSWORD; old files have "username" and "password".
std::optional<Credential> read_entry(const Json& entry, const std::string& where, const RegistryPlace& place,
                                     LogSink& log) {
  const std::string token = entry.text("identitytoken");
  const std::string encoded = entry.text("auth");
  std::string login = entry.text("username");
  std::string password = entry.text("password");
  if (!encoded.empty()) {
    const auto decoded = decode_base64(encoded);
    const auto parts = decoded ? cut(*decoded, ':') : std::nullopt;
    if (!parts) {
      log.warning(where + ": ignoring the entry of " + printable(place.authority) + ": its \"auth\" is damaged");
      return std::nullopt;
    }
    login = parts->first;
    password = std::string(parts->second.substr(0, parts->second.find('\0')));
  }
  if (!token.empty()) {
    Credential credential = registry_credential(place, login, token);
    credential.identity_token = true;
    return credential;
  }
  if (login.empty() || password.empty()) return std::nullopt;
  return registry_credential(place, login, password);
}

std::optional<Credential> ask_helper(const std::string& name, const std::string& server, const std::string& where,
                                     const RegistryPlace& place, const CredentialHelper& helper, LogSink& log) {
  auto answer = helper(name, server);
  if (!answer) {
    log.warning(where + ": docker-credential-" + printable(name) + " gives no login for " + printable(place.authority) +
                ": " + answer.error().message());
    return std::nullopt;
  }
  if (!*answer) return std::nullopt;
  Credential credential = registry_credential(place, (*answer)->login, (*answer)->password);
  credential.identity_token = credential.login == kTokenLogin;
  if (credential.identity_token) credential.login.clear();
  return credential;
}

/// What docker-credential-helpers print: {"ServerURL":..,"Username":..,"Secret":..}.
Result<std::optional<Credential>> parse_helper_answer(const CommandOutput& output) {
  if (!output.status.success()) {
    // The helpers have no other way to say so than this text.
    if (to_lower(output.text).find("credentials not found") != std::string::npos) return std::nullopt;
    return fail(ErrorKind::failure, "the command " + output.status.text());
  }
  const auto json = parse_json(output.text);
  if (!json || json->as_object() == nullptr) return fail(ErrorKind::corrupt, "its answer is not JSON");
  const std::string login = json->text("Username");
  const std::string secret = json->text("Secret");
  if (login.empty() || secret.empty()) return std::nullopt;
  return Credential{{}, login, secret};
}

}  // namespace

std::optional<Credential> find_docker_credential(std::string_view json, const std::string& where,
                                                 const RegistryPlace& place, const CredentialHelper& helper,
                                                 LogSink& log) {
  const auto config = parse_json(json);
  if (!config || config->as_object() == nullptr) {
    log.warning("ignoring " + where + ": not a JSON object");
    return std::nullopt;
  }
  if (const Json::Member* own = longest_match(*config, "credHelpers", place); own != nullptr && own->value.as_text())
    if (auto found = ask_helper(*own->value.as_text(), own->name, where, place, helper, log)) return found;
  if (const std::string store = config->text("credsStore"); !store.empty()) {
    const std::string server = place.authority == kDockerHub ? std::string(kHubServer) : place.authority;
    if (auto found = ask_helper(store, server, where, place, helper, log)) return found;
  }
  const Json::Member* entry = longest_match(*config, "auths", place);
  return entry != nullptr ? read_entry(entry->value, where, place, log) : std::nullopt;
}

CredentialHelper helper_program(const Environment& environment, std::chrono::milliseconds time) {
  return [&environment, time](const std::string& name, const std::string& server) -> Result<std::optional<Credential>> {
    if (name.empty() || name.find('/') != std::string::npos) return fail(ErrorKind::usage, "not the name of a helper");
    SpawnOptions options;
    options.program =
        find_program("docker-credential-" + name, environment.get_or("PATH", "/usr/local/bin:/usr/bin:/bin"));
    if (options.program.empty()) return fail(ErrorKind::not_found, "no such program in PATH");
    options.arguments = {"docker-credential-" + name, "get"};
    options.environment = environment.strings();
    TRY_ASSIGN(const CommandOutput output, run_for_output(std::move(options), server, STDIN_FILENO, time));
    return parse_helper_answer(output);
  };
}

std::vector<std::string> docker_config_files(const Environment& environment) {
  std::vector<std::string> files;
  const std::string home = environment.get_or("HOME", "");
  const auto add = [&](const std::string& directory, const std::string& rest) {
    if (directory.starts_with('/')) files.push_back(directory + rest);
  };
  const auto directory = [&](std::string_view variable, const std::string& fallback) {
    std::string value = environment.get_or(variable, "");
    return value.empty() ? fallback : value;
  };
  add(environment.get_or("REGISTRY_AUTH_FILE", ""), "");
  const std::string runtime = environment.get_or("XDG_RUNTIME_DIR", "");
  add(runtime.empty() ? "/run/containers/" + std::to_string(geteuid()) : runtime + "/containers", "/auth.json");
  add(directory("XDG_CONFIG_HOME", home.empty() ? "" : home + "/.config"), "/containers/auth.json");
  add(directory("DOCKER_CONFIG", home.empty() ? "" : home + "/.docker"), "/config.json");
  return files;
}

void collect_docker_credentials(const std::vector<RegistryPlace>& places, const Environment& environment,
                                CredentialSet& set, LogSink& log) {
  const CredentialHelper helper = helper_program(environment);
  std::vector<bool> done(places.size(), false);
  for (const std::string& path : docker_config_files(environment)) {
    const auto text = read_file(path, kMaxDockerConfigBytes);
    if (!text) {
      const bool named = path == environment.get_or("REGISTRY_AUTH_FILE", "");
      const bool missing = text.error().kind() == ErrorKind::not_found || text.error().errnum() == ENOTDIR;
      if (named || !missing) log.warning("ignoring a file with logins: " + text.error().message());
      continue;
    }
    for (size_t i = 0; i < places.size(); ++i) {
      if (done[i]) continue;
      auto credential = find_docker_credential(*text, printable(path), places[i], helper, log);
      if (!credential) continue;
      set.add(std::move(*credential));
      done[i] = true;
    }
  }
}

}  // namespace situla
