#include "hooks/request/request.hpp"

#include <array>

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "hooks/request/docker_config.hpp"
#include "hooks/request/engine_settings.hpp"
#include "hooks/request/mirrors.hpp"

namespace situla {
namespace {

constexpr WireForm kForm{"import request", 0x51520007, ImportRequest::kMaxBytes};
constexpr uint32_t kMaxCredentials = 4096;

struct Architecture {
  std::string_view spelling, oci, variant;
};
constexpr std::array<Architecture, 12> kArchitectures = {{
    {"x86_64", "amd64", ""},
    {"amd64", "amd64", ""},
    {"aarch64", "arm64", "v8"},
    {"arm64", "arm64", "v8"},
    {"ppc64le", "ppc64le", ""},
    {"ppc64el", "ppc64le", ""},
    {"s390x", "s390x", ""},
    {"riscv64", "riscv64", ""},
    {"i386", "386", ""},
    {"armv7l", "arm", "v7"},
    {"armhf", "arm", "v7"},
    {"armv6l", "arm", "v6"},
}};

uint32_t number(const EnrootConfig& config, std::string_view name, uint32_t fallback, LogSink& log) {
  const std::string text = config.get(name);
  if (text.empty()) return fallback;
  const auto value = parse_unsigned(text);
  if (value && *value <= 1000000) return static_cast<uint32_t>(*value);
  log.warning("ignoring " + std::string(name) + "=" + printable(text) + ": not a number");
  return fallback;
}

/// Proxies are spelled in both cases in the wild; curl reads lower case first.
std::string proxy(const EnrootConfig& config, const Environment& environment, const std::string& lower,
                  std::string_view upper) {
  std::string value = config.get(lower);
  if (value.empty()) value = environment.get_or(upper, "");
  return value;
}

ImportSettings collect_settings(const EnrootConfig& config, const Environment& environment, LogSink& log) {
  ImportSettings settings;
  settings.ssl_cert_file = config.get("SSL_CERT_FILE");
  settings.ssl_cert_dir = config.get("SSL_CERT_DIR");
  // HTTP_PROXY in capitals is not read: a CGI client can set it (CVE-2016-5385), and curl does not either.
  settings.http_proxy = config.get("http_proxy");
  settings.https_proxy = proxy(config, environment, "https_proxy", "HTTPS_PROXY");
  settings.all_proxy = proxy(config, environment, "all_proxy", "ALL_PROXY");
  settings.no_proxy = proxy(config, environment, "no_proxy", "NO_PROXY");
  settings.allow_http = config.flag("ENROOT_ALLOW_HTTP");
  settings.max_connections = number(config, "ENROOT_MAX_CONNECTIONS", settings.max_connections, log);
  settings.max_processors = number(config, "ENROOT_MAX_PROCESSORS", settings.max_processors, log);
  settings.connect_timeout = number(config, "ENROOT_CONNECT_TIMEOUT", settings.connect_timeout, log);
  settings.transfer_timeout = number(config, "ENROOT_TRANSFER_TIMEOUT", settings.transfer_timeout, log);
  settings.stall_timeout = number(config, "ENROOT_STALL_TIMEOUT", settings.stall_timeout, log);
  settings.stall_rate = number(config, "ENROOT_STALL_RATE", settings.stall_rate, log);
  settings.transfer_retries = number(config, "ENROOT_TRANSFER_RETRIES", settings.transfer_retries, log);
  settings.squash_options = config.get("ENROOT_SQUASH_OPTIONS");
  if (const auto epoch = environment.get("SOURCE_DATE_EPOCH"); epoch && !epoch->empty()) {
    const auto seconds = parse_unsigned(*epoch);
    if (seconds && *seconds <= UINT32_MAX)
      settings.source_date_epoch = static_cast<uint32_t>(*seconds);
    else
      log.warning("ignoring SOURCE_DATE_EPOCH=" + printable(*epoch) + ": not a time that squashfs can hold");
  }
  return settings;
}

/// `foo.sqsh` without "./" is a reference; when that fails, the user most likely meant the file.
std::string file_hint(std::string_view image, const Environment& environment) {
  const std::string directory = environment.get_or("PWD", "");
  struct stat status {};
  if (image_kind(image) != ImageKind::registry || image.find("://") != std::string_view::npos || directory.empty())
    return {};
  const std::string path = directory + "/" + std::string(image);
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    return "the file " + printable(path) + " exists: to use it, write ./" + printable(image);
  if (!image.ends_with(".sqsh")) return {};
  return "there is no file " + printable(path) + "; the path of another one begins with / or ./";
}

}  // namespace

Result<Platform> Platform::parse(std::string_view text) {
  Platform platform;
  auto pieces = split(text, '/');
  if (pieces.size() > 1) {
    platform.os = pieces[0];
    platform.architecture = pieces[1];
    if (pieces.size() > 2) platform.variant = pieces[2];
    if (pieces.size() > 3 || platform.os.empty()) platform.architecture.clear();
  } else {
    platform.architecture = text;
  }
  for (const Architecture& known : kArchitectures) {
    if (known.spelling != platform.architecture && known.oci != platform.architecture) continue;
    platform.architecture = known.oci;
    if (platform.variant.empty()) platform.variant = known.variant;
    return platform;
  }
  return fail(Error(ErrorKind::usage, "unknown architecture '" + printable(text) + "'")
                  .with_code(ErrorCode::option)
                  .with_hint("use x86_64, aarch64 or ppc64le, or their Debian names amd64, arm64 or ppc64el"));
}

Platform Platform::host() {
  utsname system{};
  uname(&system);
  auto platform = parse(std::string_view(system.machine));
  if (platform) return *platform;
  Platform unknown;
  unknown.architecture = std::string_view(system.machine);
  return unknown;
}

std::string ImportRequest::image_in_words() const {
  constexpr std::string_view kScheme = "docker://";
  const auto reference = ImageReference::parse(image);
  if (!reference || image_kind(image) != ImageKind::registry) return printable(image);
  // Also what pin() has made of it.
  if (reference->digest) return printable(reference->text());
  const bool says_where = image.find(reference->registry) != std::string::npos;
  const std::string typed = image.starts_with(kScheme) ? image.substr(kScheme.size()) : image;
  return printable(typed) + (says_where ? "" : " (" + printable(reference->text()) + ")");
}

Result<void> ImportRequest::pin(const Digest& manifest) {
  TRY_ASSIGN(const ImageReference reference, ImageReference::parse(image));
  const std::string user = reference.user.empty() ? "" : reference.user + "@";
  const std::string tag = reference.tag.empty() ? "" : ":" + reference.tag;
  image = "docker://" + user + reference.registry + "#" + reference.repository + tag + "@" + manifest.text();
  return {};
}

Result<std::string> ImportRequest::serialize() const {
  std::string bytes = to_wire(*this, kForm);
  if (bytes.size() > kMaxBytes || credentials.all().size() > kMaxCredentials)
    return fail(Error(ErrorKind::usage, "the import request is larger than 2 MiB")
                    .with_code(ErrorCode::credentials)
                    .with_hint("remove entries from the .credentials file that this import does not need"));
  return bytes;
}

Result<ImportRequest> ImportRequest::deserialize(std::string_view bytes) {
  TRY_ASSIGN(ImportRequest request, from_wire<ImportRequest>(bytes, kForm));
  if (request.credentials.all().size() > kMaxCredentials)
    return fail(ErrorKind::corrupt, "the import request has too many credentials");
  // What an image is known by is this text: no two of them may mean the same.
  const std::string& certificates = request.settings.trust.pem;
  if (canonical_certificates(certificates) != certificates)
    return fail(ErrorKind::corrupt, "the import request has certificates in another form than ours");
  return request;
}

std::string user_layer_cache(const EnrootConfig& config) {
  return config.cache_path();
}

Result<ImportRequest> make_import_request(std::string_view image, const EnrootConfig& config,
                                          const Environment& environment, const RuleFiles& rule_files, LogSink& log,
                                          std::string_view platform) {
  if (image_kind(image) == ImageKind::path)
    return fail(Error(ErrorKind::usage, "import " + printable(image) + ": a path names no image to import")
                    .with_code(ErrorCode::image_name));
  TRY(check_image(image));
  if (!platform.empty()) TRY(Platform::parse(platform));
  ImportRequest request;
  request.image = image;
  request.platform = platform;
  request.settings = collect_settings(config, environment, log);
  request.hint = file_hint(image, environment);
  TRY_ASSIGN(request.budget, load_import_budget(rule_files));
  const ImageKind kind = image_kind(image);
  if (kind == ImageKind::docker_daemon || kind == ImageKind::podman)
    request.engine = collect_engine_settings(kind, config, environment);
  if (kind != ImageKind::registry) return request;
  TRY_ASSIGN(request.settings.token_servers, parse_token_servers(config.get("ENROOT_TOKEN_SERVERS")));
  TRY_ASSIGN(request.settings.trust, read_trust_anchors(request.settings.ssl_cert_file, request.settings.ssl_cert_dir));
  TRY_ASSIGN(const ImageReference reference, ImageReference::parse(image));
  TRY_ASSIGN(request.rules, load_registry_rules(rule_files));
  const auto endpoints = endpoints_of(reference, request.rules);
  if (!endpoints)
    return fail(Error(endpoints.error()).with_context("failed to import docker image: " + request.image_in_words()));
  std::vector<RegistryPlace> places;
  for (const RegistryEndpoint& endpoint : *endpoints)
    places.push_back({endpoint.reference.registry, endpoint.reference.repository});
  TRY_ASSIGN(request.credentials, collect_credentials(config, environment, log));
  collect_docker_credentials(places, environment, request.credentials, log);
  return request;
}

}  // namespace situla
