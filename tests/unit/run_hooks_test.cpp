// Which hooks run, in which order, and what do scripts leave behind? COMPAT.md 6.3 and its last paragraph.
#include <algorithm>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/scripts/config_script.hpp"
#include "hooks/scripts/definitions.hpp"
#include "hooks/scripts/hook_sequence.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

namespace fs = std::filesystem;
using namespace situla;

namespace {

constexpr std::string_view kShadow = "#!/bin/bash\n\n# (c) 2020\nset -eu\necho shadow\n";
constexpr std::string_view kPmi = "set -eu\necho pmi\n";

struct Site {
  test::TempDir dir;
  test::MemoryLog log;
  std::vector<KnownScript> known = {{"10-shadow.sh", BuiltInHook::shadow, fingerprint(kShadow)},
                                    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, fingerprint(kPmi)}};

  void put(const std::string& name, std::string_view content, bool executable = true) const {
    dir.write(name, std::string(content));
    REQUIRE(chmod((dir.path() + "/" + name).c_str(), executable ? 0755 : 0644) == 0);
  }
  EnrootConfig config() {
    Environment environment;
    environment.set("PATH", "/usr/bin:/bin");
    environment.set("HOME", "/home/ada");
    environment.set("ENROOT_SYSCONF_PATH", dir.path() + "/site");
    environment.set("ENROOT_CONFIG_PATH", dir.path() + "/user");
    auto config = EnrootConfig::load(environment, log);
    REQUIRE(config);
    return *config;
  }
  /// "shadow" for the built-in hook, a script by its path beneath the directory.
  std::vector<std::string> sequence(HookUse use = HookUse::command) {
    static const std::vector<std::string> kNames = {
        "aptfix",     "cgroups", "devices", "drm",   "fabric",    "home",       "localtime",     "mellanox",
        "mig-config", "nvidia",  "shadow",  "sharp", "slurm-pmi", "slurm-pmix", "slurm-pytorch", "wanted-devices"};
    const auto steps = hook_sequence(config(), use, known);
    REQUIRE(steps);
    std::vector<std::string> words;
    for (const HookStep& step : *steps)
      words.push_back(step.built_in ? kNames.at(static_cast<size_t>(*step.built_in))
                                    : step.script.substr(dir.path().size() + 1));
    // Whatever else there is.
    for (const char* last : {"wanted-devices", "fabric", "drm"}) {
      REQUIRE(!words.empty());
      CHECK(words.back() == last);
      words.pop_back();
    }
    return words;
  }
};

using Words = std::vector<std::string>;
const Words kStandard = {"aptfix", "cgroups", "devices", "home", "localtime", "shadow", "nvidia", "mellanox"};

}  // namespace

TEST_CASE("without hooks.d the standard hooks run, in the order of their scripts' names") {
  Site site;
  CHECK(site.sequence() == kStandard);
}

TEST_CASE("in a step PMIx works without a script, and with one the script's hook does it") {
  Site site;
  Words with_pmix = kStandard;
  with_pmix.emplace_back("slurm-pmix");
  CHECK(site.sequence(HookUse::step) == with_pmix);
  site.put("site/hooks.d/10-shadow.sh", kShadow);
  CHECK(site.sequence(HookUse::step) == Words{"shadow", "slurm-pmix"});
  site.put("site/hooks.d/50-slurm-pmi.sh", kPmi);
  CHECK(site.sequence(HookUse::step) == Words{"shadow", "slurm-pmi"});
  site.put("site/hooks.d/50-slurm-pmi.sh", "changed\n");
  CHECK(site.sequence(HookUse::step) == Words{"shadow", "site/hooks.d/50-slurm-pmi.sh", "slurm-pmix"});
}

TEST_CASE("a site's own scripts run among the standard hooks, the user's after all of them") {
  Site site;
  site.put("site/hooks.d/10-license.sh", "true\n");
  site.put("site/hooks.d/50-site.sh", "true\n");
  site.put("site/hooks.d/60-off.sh", "true\n", false);
  site.put("site/hooks.d/readme.txt", "true\n");
  site.put("site/hooks.d/.hidden.sh", "true\n");
  site.put("user/hooks.d/05-mine.sh", "true\n");
  fs::create_directories(site.dir.path() + "/site/hooks.d/70-directory.sh");
  CHECK(site.sequence() == Words{"aptfix", "cgroups", "devices", "home", "site/hooks.d/10-license.sh", "localtime",
                                 "shadow", "site/hooks.d/50-site.sh", "nvidia", "mellanox", "user/hooks.d/05-mine.sh"});
}

TEST_CASE("a hooks.d that enroot's package made: what is not in it does not run") {
  Site site;
  site.put("site/hooks.d/10-shadow.sh", kShadow);
  site.put("site/hooks.d/50-slurm-pmi.sh", kPmi);
  site.put("site/hooks.d/98-nvidia.sh", "true\n");
  CHECK(site.sequence() == Words{"shadow", "slurm-pmi", "site/hooks.d/98-nvidia.sh"});
  site.put("site/hooks.d/10-shadow.sh", kShadow, false);
  CHECK(site.sequence() == Words{"slurm-pmi", "site/hooks.d/98-nvidia.sh"});
}

TEST_CASE("a link to /dev/null switches off a standard hook, and a script of the site") {
  Site site;
  site.put("site/hooks.d/50-site.sh", "true\n");
  const std::string hooks = site.dir.path() + "/site/hooks.d/";
  fs::create_symlink("/dev/null", hooks + "10-shadow.sh");
  CHECK(site.sequence() ==
        Words{"aptfix", "cgroups", "devices", "home", "localtime", "site/hooks.d/50-site.sh", "nvidia", "mellanox"});
  fs::remove(hooks + "50-site.sh");
  fs::create_symlink("/dev/null", hooks + "50-site.sh");
  CHECK(site.sequence() == Words{"aptfix", "cgroups", "devices", "home", "localtime", "nvidia", "mellanox"});
}

TEST_CASE("a changed copy of a standard script runs as it is, in its place, and the built-in hook does not") {
  Site site;
  site.put("site/hooks.d/10-shadow.sh", std::string(kShadow) + "echo more\n");
  site.put("site/hooks.d/20-next.sh", "true\n");
  CHECK(site.sequence() == Words{"site/hooks.d/10-shadow.sh", "site/hooks.d/20-next.sh"});
}

TEST_CASE("comments, years and blanks make no other script; everything else does, the name too") {
  Site site;
  site.put("site/hooks.d/10-shadow.sh",
           "#! /usr/bin/env bash\n# (c) 2025, with a licence\n\nset -eu\n\necho shadow  \n");
  CHECK(site.sequence() == Words{"shadow"});
  site.put("site/hooks.d/10-shadow.sh", "set -eu\necho  shadow\n");
  CHECK(site.sequence() == Words{"site/hooks.d/10-shadow.sh"});
  site.put("site/hooks.d/10-shadow.sh", kShadow);
  site.put("site/hooks.d/11-shadow.sh", kShadow);
  CHECK(site.sequence() == Words{"shadow", "site/hooks.d/11-shadow.sh"});
}

TEST_CASE("a user's copies: an unchanged one is not run twice, a changed one runs as well") {
  Site site;
  site.put("user/hooks.d/10-shadow.sh", kShadow);
  site.put("user/hooks.d/50-slurm-pmi.sh", kPmi);
  Words expected = kStandard;
  expected.emplace_back("slurm-pmi");
  CHECK(site.sequence() == expected);
  site.put("user/hooks.d/10-shadow.sh", "echo mine\n");
  expected = kStandard;
  expected.insert(expected.end(), {"user/hooks.d/10-shadow.sh", "slurm-pmi"});
  CHECK(site.sequence() == expected);
}

TEST_CASE("every released script is in the table once, and no fingerprint is another's") {
  const auto scripts = released_scripts();
  CHECK(scripts.size() >= 30);
  for (size_t i = 0; i < scripts.size(); ++i)
    for (size_t k = 0; k < i; ++k) CHECK(scripts[i].fingerprint != scripts[k].fingerprint);
}

TEST_CASE("releases of enroot 4.x are recognised") {
  using Release = std::pair<std::string_view, uint64_t>;
  for (const auto& [name, fingerprint] :
       {Release{"10-cgroups.sh", 0xed6f9f70ad0ec4c6}, Release{"10-shadow.sh", 0xb9487144e7f09444},
        Release{"50-mig-config.sh", 0x39fb959af03a6d97}, Release{"50-slurm-pmi.sh", 0x151de41be87d1db9},
        Release{"98-nvidia.sh", 0xc08f11e17216a903}}) {
    INFO(name);
    const auto is_it = [&, &name = name, &fingerprint = fingerprint](const KnownScript& script) {
      return script.name == name && script.fingerprint == fingerprint;
    };
    CHECK(std::any_of(released_scripts().begin(), released_scripts().end(), is_it));
  }
}

TEST_CASE("releases of enroot 1.x to 3.x that do what the built-in hook does are recognised") {
  for (const KnownScript& release :
       {KnownScript{"10-devices.sh", BuiltInHook::devices, 0x8e731d162da44ed4},
        KnownScript{"10-shadow.sh", BuiltInHook::shadow, 0xe1884d2da1b04f40},
        KnownScript{"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0x44c2b3f3d4db9a31},
        KnownScript{"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0xfea0be09594f7423},
        KnownScript{"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0x1d343c14a665439b}}) {
    INFO(release.name);
    const auto is_it = [&](const KnownScript& script) {
      return script.name == release.name && script.hook == release.hook && script.fingerprint == release.fingerprint;
    };
    CHECK(std::any_of(released_scripts().begin(), released_scripts().end(), is_it));
  }
}

TEST_CASE("a standard script of any release means the hook that runs without it") {
  for (const auto& [name, hook] : standard_hooks()) {
    INFO(name);
    int releases = 0;
    for (const KnownScript& script : released_scripts()) {
      if (script.name != name) continue;
      ++releases;
      CHECK(script.hook == hook);
    }
    CHECK(releases > 0);
  }
}

TEST_CASE("devices: unchanged scripts are built in, in their places; 99-nvidia.sh of old releases runs as it is") {
  Site site;
  const std::string_view nvidia = "echo nvidia\n";
  const std::string_view mellanox = "echo mellanox\n";
  site.known.push_back({"98-nvidia.sh", BuiltInHook::nvidia, fingerprint(nvidia)});
  site.known.push_back({"99-mellanox.sh", BuiltInHook::mellanox, fingerprint(mellanox)});
  site.put("site/hooks.d/98-nvidia.sh", nvidia);
  site.put("site/hooks.d/98-z.sh", "true\n");
  site.put("site/hooks.d/99-mellanox.sh", mellanox);
  CHECK(site.sequence() == Words{"nvidia", "site/hooks.d/98-z.sh", "mellanox"});
  site.put("site/hooks.d/98-nvidia.sh", "echo mine\n");
  CHECK(site.sequence() == Words{"site/hooks.d/98-nvidia.sh", "site/hooks.d/98-z.sh", "mellanox"});
  site.put("site/hooks.d/98-nvidia.sh", nvidia, false);
  site.put("site/hooks.d/99-nvidia.sh", nvidia);
  CHECK(site.sequence() == Words{"site/hooks.d/98-z.sh", "mellanox", "site/hooks.d/99-nvidia.sh"});
}

TEST_CASE("what scripts leave in the environment file") {
  Environment before;
  before.set("KEPT", "\"quoted\"");
  before.set("CHANGED", "old");
  before.set("REMOVED", "x");
  before.set("LINES", "one\ntwo");
  CHECK(definitions_text(before) == "KEPT=\"quoted\"\nCHANGED=old\nREMOVED=x\n");
  const Environment after = definitions_taken_back(
      "KEPT=\"quoted\"\nCHANGED=old\n  # comment\n  INDENTED=1\nCHANGED=new ${HOME}\nENROOT_X=1\n1X=2\nno definition\n"
      "QUOTED='a b' \n",
      before);
  CHECK(after.get("KEPT") == "\"quoted\"");
  CHECK(after.get("CHANGED") == "new ${HOME}");
  CHECK_FALSE(after.has("REMOVED"));
  CHECK(after.get("LINES") == "one\ntwo");
  CHECK(after.get("INDENTED") == "1");
  CHECK(after.get("QUOTED") == "a b");
  CHECK_FALSE(after.has("ENROOT_X"));
  CHECK_FALSE(after.has("1X"));
}

TEST_CASE("directives of a configuration script beat environment and files; the last one counts") {
  Site site;
  site.put("site/enroot.conf", "ENROOT_REMAP_ROOT no\nENROOT_TEMP_PATH /from/file\n");
  site.put("c.sh",
           "#!/bin/bash\n#ENROOT_REMAP_ROOT=yes\n# ENROOT_TEMP_PATH ${HOME}/t\n#ENROOT_DATA_PATH=$(echo a)b\n"
           "#ENROOT_MAX_PROCESSORS=1\n#ENROOT_MAX_PROCESSORS 3\n#SOMETHING else\nENROOT_LOGIN_SHELL=no\n");
  const auto config = with_directives(site.config(), site.dir.path() + "/c.sh", site.log);
  REQUIRE(config);
  CHECK(config->flag("ENROOT_REMAP_ROOT"));
  CHECK(config->temp_path() == "/home/ada/t");
  CHECK(config->data_path() == "ab");
  CHECK(config->get("ENROOT_MAX_PROCESSORS") == "3");
  CHECK(config->flag("ENROOT_LOGIN_SHELL"));
  CHECK(config->exported().get("ENROOT_REMAP_ROOT") == "yes");
  CHECK_FALSE(config->exported().has("ENROOT_MOUNT_HOME"));
  const auto missing = with_directives(site.config(), "/no/such/script", site.log);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message() == "No such file or directory: /no/such/script");
}
