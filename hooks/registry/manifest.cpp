#include "hooks/registry/manifest.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"

namespace situla {
namespace {

constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxIndexEntries = 4096;
constexpr size_t kMaxPlatformsShown = 20;
constexpr size_t kMaxUrls = 16;  // of one layer: each is asked, and may take its time

Result<Json> parse_object(std::string_view text) {
  auto json = parse_json(text);
  if (json && json->as_object() == nullptr) return fail(ErrorKind::corrupt, "not JSON");
  return json;
}

Result<Descriptor> parse_descriptor(const Json& json, const std::string& what) {
  Descriptor descriptor;
  auto digest = Digest::parse(json.text("digest"));
  if (!digest) return fail(ErrorKind::corrupt, "manifest: " + what + ": " + digest.error().message());
  descriptor.digest = *digest;
  descriptor.media_type = json.text("mediaType");
  const Json* size = json.find("size");
  const auto bytes = size != nullptr ? size->as_number() : std::nullopt;
  if (!bytes || *bytes > INT64_MAX) return fail(ErrorKind::corrupt, "manifest: " + what + ": no size");
  descriptor.size = *bytes;
  descriptor.urls = json.texts("urls");
  if (descriptor.urls.size() > kMaxUrls)
    return fail(ErrorKind::corrupt, "manifest: " + what + ": has " + std::to_string(descriptor.urls.size()) +
                                        " URLs, more than " + std::to_string(kMaxUrls));
  return descriptor;
}

Result<Index> parse_index(const Json::List& manifests) {
  Index index;
  if (manifests.size() > kMaxIndexEntries)
    return fail(ErrorKind::corrupt, "index: has " + std::to_string(manifests.size()) + " entries, more than " +
                                        std::to_string(kMaxIndexEntries));
  std::optional<Error> unusable;
  size_t number = 0;
  for (const Json& item : manifests) {
    IndexEntry entry;
    auto manifest = parse_descriptor(item, "index entry " + std::to_string(++number));
    // With a digest of another kind, for example: the others are as good as without it.
    if (!manifest) {
      if (!unusable) unusable = std::move(manifest).error();
      continue;
    }
    entry.manifest = std::move(*manifest);
    if (const Json* platform = item.find("platform"); platform != nullptr) {
      entry.platform.architecture = platform->text("architecture");
      entry.platform.variant = platform->text("variant");
      entry.platform.os = platform->text("os");
    }
    entry.artifact = !item.text("artifactType").empty();
    if (const Json* annotations = item.find("annotations"); annotations != nullptr)
      for (const std::string_view key : {"org.opencontainers.image.ref.name", "io.containerd.image.name"})
        if (std::string name = annotations->text(key); !name.empty()) entry.names.push_back(std::move(name));
    index.push_back(std::move(entry));
  }
  if (index.empty() && unusable) return fail(std::move(*unusable));
  return index;
}

Result<Manifest> parse_image_manifest(const Json& json, const Json::List& layers) {
  Manifest manifest;
  uint64_t bytes = 0;
  const Json* config = json.find("config");
  TRY_ASSIGN(manifest.config, parse_descriptor(config != nullptr ? *config : Json(), "configuration"));
  for (const Json& item : layers) {
    TRY_ASSIGN(auto layer, parse_descriptor(item, "layer " + std::to_string(manifest.layers.size() + 1)));
    bytes += layer.size;
    if (bytes > INT64_MAX) return fail(ErrorKind::corrupt, "manifest: its layers have more bytes than can be counted");
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

std::string platform_text(const Platform& platform) {
  std::string text = platform.os + "/" + platform.architecture;
  if (!platform.variant.empty()) text += "/" + platform.variant;
  return excerpt(text);
}

/// N of the variant "vN"; 0 for any other word. Without one it is what containerd takes it for.
unsigned variant_level(const Platform& platform) {
  std::string_view variant = platform.variant;
  if (variant.empty()) variant = platform.architecture == "arm64" ? "v8" : platform.architecture == "arm" ? "v7" : "v1";
  if (!variant.starts_with('v')) return 0;
  return static_cast<unsigned>(std::min<uint64_t>(parse_unsigned(variant.substr(1)).value_or(0), 99));
}

/// How well an image for `offered` does where `wanted` was asked for, which has the same architecture: the same variant
/// is best, then the highest below it, which every such processor runs, then what nobody knows, then the lowest above.
unsigned suitability(const Platform& offered, const Platform& wanted) {
  const unsigned level = variant_level(offered);
  const unsigned most = variant_level(wanted);
  if (offered.variant == wanted.variant || (level == most && level > 0)) return 400;
  if (level == 0) return 200;
  return level < most ? 300 + level : 100 - level;
}

/// Texts become paths, files of lines, environment and arguments: a NUL byte would end them early, unseen.
Result<void> check_texts(const ImageConfig& config) {
  const auto bad = [](std::string_view text) { return text.find('\0') != std::string_view::npos; };
  const auto any = [&](const std::vector<std::string>& texts) { return std::any_of(texts.begin(), texts.end(), bad); };
  const auto label = [&](const auto& pair) { return bad(pair.first) || bad(pair.second); };
  const char* where = bad(config.architecture)                                         ? "architecture"
                      : bad(config.os)                                                 ? "os"
                      : bad(config.variant)                                            ? "variant"
                      : bad(config.created)                                            ? "created"
                      : any(config.environment)                                        ? "Env"
                      : any(config.entrypoint)                                         ? "Entrypoint"
                      : any(config.command)                                            ? "Cmd"
                      : bad(config.workdir)                                            ? "WorkingDir"
                      : bad(config.user)                                               ? "User"
                      : any(config.volumes)                                            ? "Volumes"
                      : std::any_of(config.labels.begin(), config.labels.end(), label) ? "Labels"
                                                                                       : nullptr;
  if (where != nullptr)
    return fail(ErrorKind::corrupt, std::string("image configuration: ") + where + " has a NUL byte");
  if (config.workdir.size() > kMaxPath)
    return fail(ErrorKind::corrupt, "image configuration: WorkingDir has " + std::to_string(config.workdir.size()) +
                                        " bytes, more than " + std::to_string(kMaxPath));
  return {};
}

}  // namespace

bool needs_newer_processor(const Platform& image, const Platform& platform) {
  return image.architecture == platform.architecture && variant_level(image) > variant_level(platform) &&
         variant_level(platform) > 0;
}

bool is_schema1(std::string_view content_type) {
  return content_type.starts_with("application/vnd.docker.distribution.manifest.v1");
}

Error schema1_error() {
  return Error(ErrorKind::unsupported, "manifest: Docker schema 1 is not supported")
      .with_code(ErrorCode::image_unsupported)
      .with_hint(
          "such images are from before 2017: push it again with a current tool, or convert it: skopeo copy "
          "--format v2s2 docker://OLD docker://NEW");
}

const std::string_view kManifestTypes =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

Result<std::variant<Manifest, Index>> parse_manifest(std::string_view text, std::string_view content_type) {
  const auto json = parse_object(text);
  if (!json)
    return fail(Error(ErrorKind::corrupt,
                      "manifest: " + json.error().message() + " (Content-Type " + excerpt(content_type) + ")")
                    .with_code(ErrorCode::registry_answer)
                    .with_hint("is this a container registry, or a web page in front of it?"));
  const auto has = [&](std::string_view name) { return json->find(name) != nullptr; };
  // Others could see another image in it than we do (CVE-2021-41190).
  if ((has("manifests") && (has("layers") || has("config") || has("fsLayers"))) || (has("layers") && has("fsLayers")))
    return fail(Error(ErrorKind::corrupt, "manifest: it can be read as that of an image and as something else")
                    .with_code(ErrorCode::registry_answer)
                    .with_hint("push the image again; no tool for images writes this"));
  if (const Json* manifests = json->find("manifests"); manifests != nullptr && manifests->as_list() != nullptr) {
    TRY_ASSIGN(Index index, parse_index(*manifests->as_list()));
    return index;
  }
  if (const Json* layers = json->find("layers"); layers != nullptr && layers->as_list() != nullptr) {
    TRY_ASSIGN(Manifest manifest, parse_image_manifest(*json, *layers->as_list()));
    return manifest;
  }
  if (json->find("fsLayers") != nullptr) return fail(schema1_error());
  std::string type = json->text("mediaType");
  if (type.empty()) type = content_type;
  return fail(
      Error(ErrorKind::corrupt, "manifest: neither an image nor an index (" + excerpt(type) + ")")
          .with_code(ErrorCode::image_unsupported)
          .with_hint("a Helm chart, a signature or another artifact may have this name; push the image again if not"));
}

Result<Descriptor> choose_platform(const Index& index, const Platform& platform) {
  const IndexEntry* best = nullptr;
  const IndexEntry* any = nullptr;  // which does not say for what it is: its configuration will
  std::string known;
  size_t shown = 0;
  for (const IndexEntry& entry : index) {
    if (entry.platform.os == "unknown") continue;                                    // attestations of buildkit
    const std::string os = entry.platform.os.empty() ? "linux" : entry.platform.os;  // enroot does not look at it
    if (entry.platform.architecture.empty()) {
      if (any == nullptr && !entry.artifact) any = &entry;
      continue;
    }
    if (shown++ < kMaxPlatformsShown) known += (known.empty() ? "" : ", ") + platform_text(entry.platform);
    if (entry.platform.architecture != platform.architecture || os != platform.os) continue;
    if (best == nullptr || suitability(entry.platform, platform) > suitability(best->platform, platform)) best = &entry;
  }
  if (best == nullptr && known.empty()) best = any;
  if (best != nullptr) return best->manifest;
  return fail(Error(ErrorKind::not_found, "the image does not exist for " + platform_text(platform))
                  .with_code(ErrorCode::image_platform)
                  .with_hint(known.empty() ? "its index names no image" : "it exists for " + known));
}

Result<ImageConfig> parse_image_config(std::string_view text) {
  const auto json = parse_object(text);
  if (!json) return fail(ErrorKind::corrupt, "image configuration: " + json.error().message());
  ImageConfig config;
  config.architecture = json->text("architecture");
  config.os = json->text("os");
  config.variant = json->text("variant");
  config.created = json->text("created");
  const Json* inner = json->find("config");
  if (inner == nullptr) {
    TRY(check_texts(config));
    return config;
  }
  config.environment = inner->texts("Env");
  config.entrypoint = inner->texts("Entrypoint");
  config.command = inner->texts("Cmd");
  config.workdir = inner->text("WorkingDir");
  config.user = inner->text("User");
  for (const Json::Member& volume : inner->members("Volumes")) config.volumes.push_back(volume.name);
  std::sort(config.volumes.begin(), config.volumes.end());
  for (const auto& [name, value] : inner->members("Labels"))
    if (value.as_text() != nullptr) config.labels.emplace_back(name, *value.as_text());
  TRY(check_texts(config));
  return config;
}

RegistryError parse_registry_error(std::string_view text) {
  const Json json = parse_json(text).value_or(Json());
  const Json::List& errors = json.items("errors");
  if (errors.empty()) return {};
  return {errors.front().text("code"), excerpt(errors.front().text("message"))};
}

std::string parse_token(std::string_view text) {
  const Json json = parse_json(text).value_or(Json());
  const std::string token = json.text("token");
  return token.empty() ? json.text("access_token") : token;
}

}  // namespace situla
