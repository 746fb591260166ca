// What do a manifest, an index and an image configuration say? Docker v2 schema 2 and OCI image-spec 1.x, parsed into
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/request/request.hpp"

namespace situla {

/// Value of Accept for every manifest request: a registry may answer 404 for a type that was not asked for.
extern const std::string_view kManifestTypes;

/// Image manifest version 2, schema 1: no configuration, layers that may be nothing. Its digest leaves out its
/// signatures.
bool is_schema1(std::string_view content_type);
Error schema1_error();

struct Descriptor {
  Digest digest;
  uint64_t size = 0;  ///< bytes
  std::string media_type;
  std::vector<std::string> urls = {};  ///< where a foreign layer can be had (OCI image-spec, descriptor)
  bool of_content = false;             ///< the digest is a diff_id: of the layer's tar, not of the (compressed) blob
};

struct Manifest {
  Descriptor config;
  std::vector<Descriptor> layers;  ///< bottom first
};

struct IndexEntry {
  Descriptor manifest;
  Platform platform;
  bool artifact = false;                ///< something that belongs to an image, and is none (OCI image-spec 1.1)
  std::vector<std::string> names = {};  ///< tags and whole references that annotations give it; in layouts
};
using Index = std::vector<IndexEntry>;

/// Told apart by mediaType, by the Content-Type given, else by their fields. Schema 1 is ErrorKind::unsupported.
Result<std::variant<Manifest, Index>> parse_manifest(std::string_view json, std::string_view content_type);

/// The entry for a platform: of its architecture the same variant, else the highest variant below, else the lowest
/// above. No variant is v8 for arm64, v7 for arm, v1 elsewhere. ErrorKind::not_found, with the platforms that exist in
/// the hint.
Result<Descriptor> choose_platform(const Index& index, const Platform& platform);
/// The image's variant of the same architecture is above the platform's.
bool needs_newer_processor(const Platform& image, const Platform& platform);

/// The parts of an image configuration that become /etc/rc, /etc/fstab and /etc/environment.
struct ImageConfig {
  std::string architecture;
  std::vector<std::string> environment;
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::string workdir;
  std::vector<std::string> volumes;                         ///< sorted
  std::vector<std::pair<std::string, std::string>> labels;  ///< in the order of the configuration
  // For `situla inspect`.
  std::string os, variant, user;
  std::string created;  ///< as RFC 3339, unchecked
};
Result<ImageConfig> parse_image_config(std::string_view json);

/// First "message" of a registry's error body ({"errors":[{"code":..,"message":..}]}), printable; and its code. Empty
/// if none.
struct RegistryError {
  std::string code, message;
};
RegistryError parse_registry_error(std::string_view json);

/// "token", or "access_token", of a token server's answer; empty if there is none.
std::string parse_token(std::string_view json);

}  // namespace situla
