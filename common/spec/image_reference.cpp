#include "common/spec/image_reference.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

constexpr std::string_view kScheme = "docker://";
constexpr std::string_view kOfficial = "library/";

struct Transport {
  std::string_view prefix;
  ImageKind kind;
};
constexpr std::array<Transport, 6> kTransports = {{
    {"dockerd://", ImageKind::docker_daemon},
    {"podman://", ImageKind::podman},
    {"oci:", ImageKind::oci_layout},
    {"oci-archive:", ImageKind::oci_archive},
    {"docker-archive:", ImageKind::docker_archive},
    {"dir:", ImageKind::directory},
}};

constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool made_of(std::string_view text, std::string_view more, bool upper) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kLower.find(c) != std::string_view::npos || more.find(c) != std::string_view::npos ||
           (upper && kUpper.find(c) != std::string_view::npos);
  });
}

std::string_view prefix_of(ImageKind kind) {
  const auto* const found = std::find_if(kTransports.begin(), kTransports.end(),
                                         [kind](const Transport& transport) { return transport.kind == kind; });
  return found == kTransports.end() ? "" : found->prefix;
}

bool is_file_kind(ImageKind kind) {
  return kind == ImageKind::oci_layout || kind == ImageKind::oci_archive || kind == ImageKind::docker_archive ||
         kind == ImageKind::directory;
}

bool is_hub(std::string_view registry) {
  return registry == "docker.io" || registry == "index.docker.io" || registry == kDockerHub;
}

/// COMPAT.md 3: a first component with a '.' or a ':' is a registry. "localhost" has neither and can be nothing else.
bool looks_like_registry(std::string_view component) {
  return component.find_first_of(".:") != std::string_view::npos || component == "localhost";
}

Error invalid_reference(std::string_view whole, const std::string& why) {
  return Error(ErrorKind::usage, "invalid image reference '" + printable(whole) + "': " + why)
      .with_code(ErrorCode::image_name)
      .with_hint(has_curly_quotes(whole) ? kPlainQuotes : "");
}

/// host, host:port or [v6]:port. Anything else would let a name reach into the path or the authority of the request.
bool valid_registry(std::string_view registry) {
  std::string_view host = registry;
  if (registry.starts_with('[')) {
    const size_t end = registry.find(']');
    if (end == std::string_view::npos || !made_of(registry.substr(1, end - 1), "ABCDEF:.", false)) return false;
    host = registry.substr(end + 1);
    return end > 1 && (host.empty() || (host[0] == ':' && parse_unsigned(host.substr(1)).value_or(65536) < 65536));
  }
  if (const auto parts = cut(registry, ':')) {
    if (parse_unsigned(parts->second).value_or(65536) > 65535) return false;
    host = parts->first;
  }
  return !host.empty() && host[0] != '-' && made_of(host, ".-_", true);
}

Result<void> check_repository(std::string_view repository, std::string_view whole) {
  if (repository.empty()) return fail(invalid_reference(whole, "no image name"));
  if (repository.find_first_of(kUpper) != std::string_view::npos)
    return fail(invalid_reference(whole, "the image name '" + printable(repository) + "' has upper-case letters")
                    .with_code(ErrorCode::image_name)
                    .with_hint("image names are lower case; the path of a file begins with / or ./"));
  if (repository.size() > 255) return fail(invalid_reference(whole, "the image name is longer than 255 characters"));
  for (const std::string_view component : split(repository, '/')) {
    if (component.empty()) return fail(invalid_reference(whole, "the image name has an empty component"));
    const bool edges = kLower.find(component.front()) != std::string_view::npos &&
                       kLower.find(component.back()) != std::string_view::npos;
    if (!edges || !made_of(component, "._-", false))
      return fail(invalid_reference(whole, "'" + printable(component) + "' is not a valid part of an image name"));
  }
  return {};
}

Result<void> check_tag(std::string_view tag, std::string_view whole) {
  if (!is_tag(tag)) return fail(invalid_reference(whole, "'" + printable(tag) + "' is not a valid tag"));
  return {};
}

/// Takes "@sha256:..." (or enroot's older ":sha256:...") off the end.
Result<std::optional<Digest>> take_digest(std::string_view& rest, std::string_view whole) {
  size_t at = rest.rfind('@');
  // `user@registry:5000` ends in something with a colon too: only a known or plausible algorithm name makes a digest.
  const auto algorithm = [&](size_t from) { return cut(rest.substr(from + 1), ':'); };
  const bool digest_like = at != std::string_view::npos && algorithm(at) && algorithm(at)->first.starts_with("sha");
  if (!digest_like || algorithm(at)->first.find_first_of("./#") != std::string_view::npos) {
    at = rest.rfind(":sha256:");
    if (at == std::string_view::npos) return std::nullopt;
  }
  auto digest = Digest::parse(rest.substr(at + 1));
  if (!digest)
    return fail(invalid_reference(whole, digest.error().message())
                    .with_code(ErrorCode::image_name)
                    .with_hint(digest.error().hint()));
  rest = rest.substr(0, at);
  return *digest;
}

Result<ImageReference> parse_reference(std::string_view text) {
  ImageReference reference;
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
  } else if (rest.find("://") != std::string_view::npos) {
    return fail(invalid_reference(text, "unknown scheme '" + printable(rest.substr(0, rest.find("://"))) + "'")
                    .with_code(ErrorCode::image_name)
                    .with_hint("write docker://IMAGE, or only IMAGE"));
  }
  TRY_ASSIGN(reference.digest, take_digest(rest, text));
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    reference.user = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    if (reference.user.empty()) return fail(invalid_reference(text, "the user name before '@' is empty"));
    if (!made_of(reference.user, "_.!~*'()%;:&=+$,-@", true))
      return fail(invalid_reference(text, "the user name has characters that are not allowed there"));
  }
  std::string_view repository = rest;
  if (const auto parts = cut(rest, '#')) {
    reference.registry = parts->first;
    repository = parts->second;
    if (reference.registry.empty()) return fail(invalid_reference(text, "the registry before '#' is empty"));
  } else if (const auto slash = cut(rest, '/'); slash && looks_like_registry(slash->first)) {
    reference.registry = slash->first;
    repository = slash->second;
  }
  if (const size_t colon = repository.rfind(':'); colon != std::string_view::npos) {
    reference.tag = repository.substr(colon + 1);
    repository = repository.substr(0, colon);
    TRY(check_tag(reference.tag, text));
  } else if (!reference.digest) {
    reference.tag = "latest";
  }
  TRY(check_repository(repository, text));
  reference.repository = repository;
  if (reference.registry.empty() || is_hub(reference.registry)) {
    reference.registry = kDockerHub;
    if (repository.find('/') == std::string_view::npos) reference.repository.insert(0, kOfficial);
    TRY(check_repository(reference.repository, text));  // it is longer now
  } else if (!valid_registry(reference.registry)) {
    return fail(invalid_reference(text, "'" + printable(reference.registry) + "' is not a registry host")
                    .with_code(ErrorCode::image_name)
                    .with_hint("a registry is HOST or HOST:PORT; a path goes before the image name, after the '#'"));
  }
  return reference;
}

}  // namespace

std::string meant_scheme(std::string_view text) {
  for (const std::string_view scheme : {"docker", "dockerd", "podman"})
    if (const auto parts = cut(text, ':'); parts && parts->first == scheme && !parts->second.starts_with("//")) {
      std::string_view rest = parts->second;
      while (rest.starts_with('/')) rest.remove_prefix(1);
      if (!rest.empty()) return "did you mean " + std::string(scheme) + "://" + printable(rest) + "?";
    }
  return "";
}

Result<ImageReference> ImageReference::parse(std::string_view text) {
  auto reference = parse_reference(text);
  if (const std::string meant = meant_scheme(text); !reference && !meant.empty())
    return fail(std::move(reference).error().with_code(ErrorCode::image_name).with_hint(meant));
  return reference;
}

bool is_tag(std::string_view text) {
  return !text.empty() && text.size() <= 128 && text.front() != '.' && text.front() != '-' &&
         made_of(text, "._-", true);
}

std::string ImageReference::registry_host() const {
  if (registry.starts_with('[')) return registry.substr(1, registry.find(']') - 1);
  return registry.substr(0, registry.find(':'));
}

std::string ImageReference::manifest_name() const {
  return digest ? digest->text() : tag;
}

std::string ImageReference::text() const {
  std::string shown = registry + "/" + repository;
  if (!tag.empty()) shown += ":" + tag;
  if (digest) shown += "@" + digest->text();
  return shown;
}

std::string ImageReference::default_file_name() const {
  std::string name = repository;
  if (registry == kDockerHub && name.starts_with(kOfficial)) name.erase(0, kOfficial.size());
  std::replace(name.begin(), name.end(), '/', '+');
  return name + "+" + (tag.empty() ? "sha256+" + digest->hex() : tag) + ".sqsh";
}

ImageKind image_kind(std::string_view text) {
  if (text.starts_with("$oauthtoken@")) return ImageKind::registry;  // NGC's login is called so
  if (!text.empty() && std::string_view("./~$").find(text.front()) != std::string_view::npos) return ImageKind::path;
  for (const Transport& transport : kTransports)
    if (text.starts_with(transport.prefix)) return transport.kind;
  const auto first = cut(text, '/');
  const bool of_registry = text.find_first_of("#@") != std::string_view::npos ||
                           text.find("://") != std::string_view::npos || (first && looks_like_registry(first->first));
  const std::string lower = to_lower(text);
  if (!of_registry && (lower.ends_with(".sqsh") || lower.ends_with(".squashfs") || lower.ends_with(".sif")))
    return ImageKind::path;
  return ImageKind::registry;
}

std::string image_path(std::string_view image, const Environment& environment) {
  return expand_home(expand_variables(image, environment), environment);
}

std::string full_image_name(std::string_view image, const Environment& environment, std::string_view directory) {
  const ImageKind kind = image_kind(image);
  const auto reference = kind == ImageKind::registry ? ImageReference::parse(image) : fail(ErrorKind::usage, "a file");
  if (reference) return reference->text();
  if (kind != ImageKind::path) return std::string(image);
  std::string path = image_path(image, environment);
  while (path.starts_with("./")) path.erase(0, 2);
  return path.starts_with('/') ? path : std::string(directory) + "/" + path;
}

Result<FileReference> FileReference::parse(std::string_view text) {
  FileReference reference;
  reference.kind = image_kind(text);
  if (!is_file_kind(reference.kind)) return fail(invalid_reference(text, "not an image in files"));
  const std::string_view prefix = prefix_of(reference.kind);
  const std::string_view rest = text.substr(prefix.size());
  const auto parts = reference.kind == ImageKind::directory ? std::nullopt : cut(rest, ':');
  reference.path = parts ? parts->first : rest;
  reference.name = parts ? parts->second : "";
  if (reference.path.empty() || rest.find('\0') != std::string_view::npos)
    return fail(invalid_reference(text, "no path")
                    .with_code(ErrorCode::image_name)
                    .with_hint("write " + std::string(prefix) + "PATH"));
  if (!reference.name.starts_with('@')) return reference;
  reference.index = parse_unsigned(std::string_view(reference.name).substr(1));
  if (!reference.index)
    return fail(invalid_reference(text, "'" + printable(reference.name) + "' is not a place: @0 is the first image"));
  reference.name.clear();
  return reference;
}

std::string FileReference::text() const {
  std::string shown = std::string(prefix_of(kind)) + path;
  if (index)
    shown += ":@" + std::to_string(*index);
  else if (!name.empty())
    shown += ":" + name;
  return printable(shown);
}

std::string FileReference::default_file_name() const {
  std::string_view base = path;
  while (base.ends_with('/')) base.remove_suffix(1);
  if (const size_t slash = base.rfind('/'); slash != std::string_view::npos) base.remove_prefix(slash + 1);
  const bool archive = kind == ImageKind::oci_archive || kind == ImageKind::docker_archive;
  if (const size_t dot = base.rfind('.'); archive && dot != std::string_view::npos && dot > 0)
    base = base.substr(0, dot);
  if (base.empty() || base == "." || base == "..") base = "image";
  return std::string(base) + ".sqsh";
}

Result<EngineReference> EngineReference::parse(std::string_view text) {
  EngineReference reference;
  reference.kind = image_kind(text);
  if (reference.kind != ImageKind::docker_daemon && reference.kind != ImageKind::podman)
    return fail(invalid_reference(text, "not an image of an engine"));
  reference.name = text.substr(prefix_of(reference.kind).size());
  const std::string& name = reference.name;
  if (name.empty()) return fail(invalid_reference(text, "no image name"));
  // The name becomes part of a URL's path and an argument.
  const auto components = split(name, '/');
  const bool leads_away = std::any_of(components.begin(), components.end(), [](std::string_view component) {
    return component.empty() || component == "." || component == "..";
  });
  if (name.starts_with('-') || name.size() > 512 || !made_of(name, "._-/:@", true) || leads_away)
    return fail(invalid_reference(text, "'" + printable(name) + "' is not the name of an image"));
  return reference;
}

std::string EngineReference::exact_name() const {
  const std::string_view last = std::string_view(name).substr(name.rfind('/') + 1);
  const bool id = name.size() >= 12 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
  return id || last.find_first_of(":@") != std::string_view::npos ? name : name + ":latest";
}

std::string EngineReference::text() const {
  return std::string(prefix_of(kind)) + name;
}

std::string EngineReference::default_file_name() const {
  std::string file = name;
  std::replace_if(
      file.begin(), file.end(), [](char c) { return c == '/' || c == ':'; }, '+');
  return file + ".sqsh";
}

Result<void> check_image(std::string_view text) {
  if (image_kind(text) == ImageKind::path) return {};
  TRY(default_file_name(text));  // parses it
  return {};
}

Result<std::string> default_file_name(std::string_view text) {
  constexpr auto kName = [](const auto& reference) { return reference.default_file_name(); };
  const ImageKind kind = image_kind(text);
  if (is_file_kind(kind)) return FileReference::parse(text).map(kName);
  if (kind == ImageKind::docker_daemon || kind == ImageKind::podman) return EngineReference::parse(text).map(kName);
  return ImageReference::parse(text).map(kName);
}

}  // namespace situla
