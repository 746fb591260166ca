// What did somebody decide about a registry? One [[registry]] table, with the words of containers-registries.conf(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace situla {

struct RegistryMirror {
  enum class Pull : uint8_t { all, digest_only, tag_only };

  std::string location;   ///< host[:port][/path] that takes the place of the rule's prefix
  bool insecure = false;  ///< as RegistryRule::insecure
  Pull pull = Pull::all;  ///< pull-from-mirror: which references it is asked for

  friend bool operator==(const RegistryMirror&, const RegistryMirror&) = default;
};

struct RegistryRule {
  std::string prefix;                   ///< host[:port][/path[:tag|@digest]] or *.host; Docker Hub is "docker.io"
  std::string location;                 ///< takes the place of the prefix; empty: the registry is where its name says
  bool insecure = false;                ///< a certificate that cannot be verified, or no TLS at all, is accepted
  bool blocked = false;                 ///< images with this prefix are refused
  std::vector<RegistryMirror> mirrors;  ///< asked before the registry itself, in this order
  std::string where;                    ///< "/etc/situla/situla.toml:12", for messages

  friend bool operator==(const RegistryRule&, const RegistryRule&) = default;
};

}  // namespace situla
