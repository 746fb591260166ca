// Whose image is this? What an image, or a layer, of a registry is known by beside its digest.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "hooks/request/request.hpp"

namespace situla {

/// Where an image comes from, as far as somebody vouches for it. A user who brings his own CA certificates, or a proxy
/// that speaks for registries without TLS, can have any server answer in a registry's name: what it says is then an
/// origin of its own.
struct Origin {
  std::string registry;    ///< "registry.test", and what proves it; empty: not from a registry
  std::string repository;  ///< "team/image"

  friend bool operator==(const Origin&, const Origin&) = default;
};

/// Of a `docker://` reference; computed from the request alone, before anybody else is asked anything. Where plain
/// http, or a certificate that nobody verifies, is possible, it counts as used. request.rules: the node's.
Result<Origin> origin_of(const ImportRequest& request);

}  // namespace situla
