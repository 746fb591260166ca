// Which login does the user have for a registry in the files of docker, podman and skopeo, or in a credential helper?
// Read as that user. docker-cli's config.json; containers-auth.json(5).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/request/credentials.hpp"

namespace situla {

/// A place in a registry that an import may talk to.
struct RegistryPlace {
  std::string authority;   ///< host or host:port; Docker Hub is "registry-1.docker.io"
  std::string repository;  ///< "team/image"
};

/// Asks `docker-credential-NAME get` about a server. nullopt: it knows none.
using CredentialHelper =
    std::function<Result<std::optional<Credential>>(const std::string& name, const std::string& server)>;

/// The credential of a file for a place: the helper of its host ("credHelpers"), the helper for all hosts
/// ("credsStore"), then "auths", where the longest key counts that is the host or a path above the repository. What
/// cannot be used warns, naming `where`, and counts as missing; nothing that is secret is in a message.
std::optional<Credential> find_docker_credential(std::string_view json, const std::string& where,
                                                 const RegistryPlace& place, const CredentialHelper& helper,
                                                 LogSink& log);

/// The program `docker-credential-NAME` of $PATH.
CredentialHelper helper_program(const Environment& environment,
                                std::chrono::milliseconds time = std::chrono::seconds(60));

/// Files in the order in which they count: $REGISTRY_AUTH_FILE, $XDG_RUNTIME_DIR/containers/auth.json (or
/// /run/containers/UID/auth.json), $XDG_CONFIG_HOME/containers/auth.json, $DOCKER_CONFIG/config.json (or
/// ~/.docker/config.json).
std::vector<std::string> docker_config_files(const Environment& environment);

/// Adds, per place, the first credential that the files have for it.
void collect_docker_credentials(const std::vector<RegistryPlace>& places, const Environment& environment,
                                CredentialSet& set, LogSink& log);

}  // namespace situla
