// Which image does a job's prolog fetch, and as whom?
#include "plugin/prolog.hpp"

#include <map>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/base64.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/step_name.hpp"

using namespace situla;

namespace {

ContainerSpec spec_of(const std::string& image) {
  ContainerSpec spec;
  spec.image = image;
  return spec;
}

std::string early(const ContainerSpec& spec, const PluginConfig& config = {}, bool allocates_only = true) {
  return early_image(spec, config, allocates_only, [](const std::string& name) -> std::optional<std::string> {
    const std::map<std::string, std::string> variables = {
        {"https_proxy", "http://proxy:1"}, {"HOME", "/elsewhere"}, {"LD_PRELOAD", "/tmp/x.so"}};
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("an image of a registry that sbatch and salloc name is fetched early, others are not") {
  CHECK_FALSE(early(spec_of("debian:12")).empty());
  for (const char* image : {"", "./debian.sqsh", "/images/debian.sqsh", "dockerd://debian", "oci:debian"})
    CHECK(early(spec_of(image)).empty());
  ContainerSpec named = spec_of("debian:12");
  named.name = "mine";
  CHECK(early(named).empty());
  PluginConfig config;
  config.scope = ContainerScope::job;
  CHECK_FALSE(early(named, config).empty());
}

TEST_CASE("prolog_prefetch says whose images are fetched early") {
  const ContainerSpec spec = spec_of("debian:12");
  PluginConfig config;
  CHECK(early(spec, config, false).empty());
  config.prolog_prefetch = PrologPrefetch::all;
  CHECK_FALSE(early(spec, config, false).empty());
  const std::string value = early(spec, config);
  config.prolog_prefetch = PrologPrefetch::none;
  CHECK(early(spec, config).empty());
  CHECK_FALSE(*job_import(value, config, 7, getuid()));
  config = {};
  config.importer = "/opt/site/importer";
  CHECK(early(spec, config).empty());
  CHECK_FALSE(*job_import(value, config, 7, getuid()));
}

TEST_CASE("the prolog fetches as whom Slurm says, with the variables of an import and no others") {
  Environment text;
  text.set("SITULA_CONTAINER_IMAGE", "debian:12");
  text.set("SITULA_CONTAINER_RESOLVE", "always");
  for (const char* name : {"HOME", "USER", "PATH", "LD_PRELOAD", "ENROOT_SYSCONF_PATH", "BASH_ENV"})
    text.set(name, "/home/somebody-else");
  text.set("https_proxy", "http://proxy:1");
  const auto import = job_import(encode_base64(text.block()), {}, 7, getuid());
  REQUIRE(import);
  REQUIRE(*import);
  const StepRequest& request = (*import)->request;
  CHECK(request.job_id == 7);
  CHECK(request.step_id == kPrologStep);
  CHECK(request.uid == getuid());
  CHECK(request.gid == getgid());
  CHECK(request.origin == ImageOrigin::registry);
  CHECK(request.prefetch);
  const auto spec = ContainerSpec::deserialize(request.spec);
  REQUIRE(spec);
  CHECK(spec->image == "debian:12");
  CHECK(spec->resolve == "always");
  const Environment environment = Environment::from_block((*import)->environment);
  CHECK(environment.entries().size() == 3);
  CHECK(environment.get("https_proxy") == "http://proxy:1");
  CHECK(environment.get_or("HOME", "").find("somebody-else") == std::string::npos);
  CHECK(environment.get_or("PATH", "").find("somebody-else") == std::string::npos);
}

TEST_CASE("what is not the text of a client begins nothing") {
  CHECK_FALSE(*job_import("", {}, 7, getuid()));
  CHECK_FALSE(*job_import(std::string(40000, 'A'), {}, 7, getuid()));
  CHECK_FALSE(*job_import(encode_base64("no variables"), {}, 7, getuid()));
  CHECK_FALSE(job_import("%%%", {}, 7, getuid()));
  Environment file;
  file.set("SITULA_CONTAINER_IMAGE", "/etc/shadow");
  CHECK_FALSE(*job_import(encode_base64(file.block()), {}, 7, getuid()));
}
