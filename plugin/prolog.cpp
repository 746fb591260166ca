#include "plugin/prolog.hpp"

#include <array>
#include <utility>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/users.hpp"

namespace situla {
namespace {

constexpr size_t kMaxBytes = 32768;  // as text; one string of an environment may have 128 KiB
constexpr const char* kImageVariable = "SITULA_CONTAINER_IMAGE";
constexpr const char* kResolveVariable = "SITULA_CONTAINER_RESOLVE";

/// What an import follows, and nothing that makes a program run another one (PATH, LD_PRELOAD, ENROOT_SYSCONF_PATH).
constexpr std::array kVariables = {"XDG_CONFIG_HOME",
                                   "XDG_RUNTIME_DIR",
                                   "DOCKER_CONFIG",
                                   "REGISTRY_AUTH_FILE",
                                   "SSL_CERT_FILE",
                                   "SSL_CERT_DIR",
                                   "http_proxy",
                                   "https_proxy",
                                   "HTTPS_PROXY",
                                   "all_proxy",
                                   "ALL_PROXY",
                                   "no_proxy",
                                   "NO_PROXY",
                                   "ENROOT_CONFIG_PATH",
                                   "ENROOT_TOKEN_SERVERS",
                                   "ENROOT_ALLOW_HTTP",
                                   "ENROOT_MAX_CONNECTIONS",
                                   "ENROOT_MAX_PROCESSORS",
                                   "ENROOT_CONNECT_TIMEOUT",
                                   "ENROOT_TRANSFER_TIMEOUT",
                                   "ENROOT_TRANSFER_RETRIES",
                                   "ENROOT_STALL_TIMEOUT",
                                   "ENROOT_STALL_RATE"};

bool fetches(const PluginConfig& config) {
  return config.prolog_prefetch != PrologPrefetch::none && config.importer.empty();
}

}  // namespace

std::string early_image(const ContainerSpec& spec, const PluginConfig& config, bool allocates_only,
                        const std::function<std::optional<std::string>(const std::string& name)>& variable) {
  if (!fetches(config) || (!allocates_only && config.prolog_prefetch != PrologPrefetch::all)) return "";
  if (image_kind(spec.image) != ImageKind::registry || spec.image.empty()) return "";
  // A container that stays on the node may be there, and then its image is not needed.
  if (!spec.name.empty() && config.scope != ContainerScope::job) return "";
  Environment environment;
  environment.set(kImageVariable, spec.image);
  if (!spec.resolve.empty()) environment.set(kResolveVariable, spec.resolve);
  for (const char* name : kVariables)
    if (const auto value = variable(name); value && !value->empty()) environment.set(name, *value);
  std::string text = encode_base64(environment.block());
  return text.size() <= kMaxBytes ? text : "";
}

Result<std::optional<JobImport>> job_import(std::string_view value, const PluginConfig& config, uint32_t job,
                                            uid_t uid) {
  if (!fetches(config) || value.empty() || value.size() > kMaxBytes) return std::nullopt;
  const auto block = decode_base64(value);
  if (!block)
    return fail(Error(ErrorKind::corrupt, std::string(kPrologVariable) + " of the job is not what sbatch has set")
                    .with_code(ErrorCode::slurm));
  const Environment given = Environment::from_block(*block);
  ContainerSpec spec;
  spec.image = given.get_or(kImageVariable, "");
  spec.resolve = given.get_or(kResolveVariable, "");
  spec.prefetch = true;
  if (spec.image.empty() || image_kind(spec.image) != ImageKind::registry) return std::nullopt;
  TRY_ASSIGN(const Account account, account_of(uid));
  Environment environment;
  environment.set("HOME", account.home);
  environment.set("PATH", "/usr/local/bin:/usr/bin:/bin");
  for (const char* name : kVariables)
    if (const auto kept = given.get(name)) environment.set(name, *kept);
  StepRequest request;
  request.job_id = job;
  request.step_id = kPrologStep;
  request.uid = uid;
  request.gid = account.identity.gid;
  request.groups.assign(account.identity.groups.begin(), account.identity.groups.end());
  request.origin = ImageOrigin::registry;
  request.prefetch = true;
  request.image = printable(spec.image);
  request.spec = spec.serialize();
  return JobImport{std::move(request), environment.block()};
}

}  // namespace situla
