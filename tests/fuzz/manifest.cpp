#include "hooks/registry/manifest.hpp"

#include <cstdlib>

#include "common/base/text.hpp"
#include "hooks/import/enroot_files.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/registry/auth.hpp"
#include "hooks/scripts/definitions.hpp"
#include "tests/fuzz/plan_checks.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

void check_manifest(std::string_view bytes) {
  const auto parsed = parse_manifest(bytes, "application/vnd.oci.image.manifest.v1+json");
  if (!parsed) return;
  if (const Manifest* manifest = std::get_if<Manifest>(&*parsed)) {
    uint64_t sum = 0;
    for (const Descriptor& layer : manifest->layers) {
      if (layer.size > INT64_MAX - sum || layer.urls.size() > 16) std::abort();
      sum += layer.size;
    }
    return;
  }
  const auto& index = std::get<Index>(*parsed);
  for (const char* platform : {"amd64", "linux/arm64/v8", "linux/arm/v6"}) {
    const auto wanted = Platform::parse(platform);
    if (!wanted) continue;
    const auto chosen = choose_platform(index, *wanted);
    if (!chosen) continue;
    // One that does not say for what it is only where no other one does.
    bool fits = false, unnamed = false, named = false;
    for (const IndexEntry& entry : index) {
      const bool is_it = entry.manifest.digest == chosen->digest;
      const bool says = !entry.platform.architecture.empty();
      const std::string os = entry.platform.os.empty() ? "linux" : entry.platform.os;
      fits = fits || (is_it && entry.platform.architecture == wanted->architecture && os == wanted->os);
      unnamed = unnamed || (is_it && !says && !entry.artifact);
      named = named || (says && entry.platform.os != "unknown");
    }
    if (!fits && (!unnamed || named)) std::abort();
  }
}

/// The three files that an image's configuration becomes are what their readers understand, and nothing else.
void check_configuration(std::string_view bytes) {
  const auto config = parse_image_config(bytes);
  if (!config) return;
  // Only comments stand before the first command of ours, whatever labels say.
  const std::string rc = make_rc(*config, "docker://registry.test/x:1");
  const size_t body = rc.find("\n\n[ -d \"");
  if (body == std::string::npos || rc.find('\0') != std::string::npos) std::abort();
  for (const std::string_view line : split(std::string_view(rc).substr(0, body), '\n'))
    if (!line.starts_with('#')) std::abort();

  static const Environment environment = Environment::from_block(std::string_view("ENROOT_ROOTFS=/run/root"));
  const auto entries = parse_fstab(make_fstab(*config), environment, "image");
  if (!entries) std::abort();
  MountPlan plan("/");
  for (const FstabEntry& entry : *entries) (void)plan.add(entry.step);
  check_plan(plan);
  for (const MountStep& step : plan.steps())
    if (step.kind != StepKind::bind || !step.flags.no_suid || !step.flags.no_dev) std::abort();

  Environment variables;
  add_definitions(variables, make_environment(*config), environment);
  for (const auto& [name, value] : variables.entries())
    if (!is_variable_name(name) || name.starts_with("ENROOT_")) std::abort();
}

}  // namespace

/// What a registry sends as JSON: manifests, indexes, configurations, errors and tokens.
void situla::fuzz(std::string_view bytes) {
  check_manifest(bytes);
  check_configuration(bytes);
  const RegistryError error = parse_registry_error(bytes);
  if (printable(error.message) != error.message) std::abort();
  (void)parse_token(bytes);
}
