// What the plugin makes of its words in plugstack.conf.
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/spec/plugin_arguments.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

Result<PluginConfig> parse(const std::vector<const char*>& words) {
  return PluginConfig::parse(words);
}

}  // namespace

TEST_CASE("plugstack.conf without words gives pyxis's defaults") {
  const auto config = parse({});
  REQUIRE(config);
  CHECK(config->scope == ContainerScope::global);
  CHECK_FALSE(config->execute_entrypoint);
  CHECK(config->sbatch_support);
  CHECK(config->importer.empty());
  CHECK_FALSE(config->use_squashfuse);
  CHECK(config->prolog_prefetch == PrologPrefetch::jobs);
}

TEST_CASE("plugstack.conf: every key of pyxis") {
  const auto config =
      parse({"runtime_path=/run/pyxis", "execute_entrypoint=1", "container_scope=job", "sbatch_support=0",
             "use_enroot_load=1", "importer=/opt/site/importer", "use_squashfuse=y"});
  REQUIRE(config);
  CHECK(config->scope == ContainerScope::job);
  CHECK(config->execute_entrypoint);
  CHECK_FALSE(config->sbatch_support);
  CHECK(config->importer == "/opt/site/importer");
  CHECK(config->use_squashfuse);
  CHECK(parse({"container_scope=global"})->scope == ContainerScope::global);
}

TEST_CASE("plugstack.conf: the words for yes and no are pyxis's") {
  for (const char* yes : {"use_squashfuse=1", "use_squashfuse=true", "use_squashfuse=yes", "use_squashfuse=y"})
    CHECK(parse({yes})->use_squashfuse);
  for (const char* no : {"sbatch_support=0", "sbatch_support=false", "sbatch_support=no", "sbatch_support=n"})
    CHECK_FALSE(parse({no})->sbatch_support);
}

TEST_CASE("plugstack.conf: whose images a prolog fetches") {
  CHECK(parse({"prolog_prefetch=0"})->prolog_prefetch == PrologPrefetch::none);
  CHECK(parse({"prolog_prefetch=yes"})->prolog_prefetch == PrologPrefetch::jobs);
  CHECK(parse({"prolog_prefetch=all"})->prolog_prefetch == PrologPrefetch::all);
}

TEST_CASE("plugstack.conf: a key that comes twice counts as it comes last") {
  const auto config = parse({"container_scope=job", "importer=/a", "container_scope=global", "importer=/b"});
  REQUIRE(config);
  CHECK(config->scope == ContainerScope::global);
  CHECK(config->importer == "/b");
}

TEST_CASE("plugstack.conf: mistakes are named, with what was meant") {
  struct Case {
    const char* word;
    const char* text;
  };
  for (const Case& c : {
           Case{"colour=blue", "plugstack.conf: unknown key 'colour' [site-config]\nhint: known keys: runtime_path, "},
           Case{"contaner_scope=job",
                "unknown key 'contaner_scope' [site-config]\nhint: did you mean \"container_scope\"? known"},
           Case{"sbatch-support=1", "did you mean \"sbatch_support\"?"},
           Case{"squashfuse", "plugstack.conf: unknown key 'squashfuse'"},
           Case{"=1", "plugstack.conf: unknown key ''"},
           Case{"\x1b[1m=1", "unknown key '\\x1b[1m'"},
           Case{"importer", "plugstack.conf: importer has no value [site-config]\nhint: write importer=VALUE"},
           Case{"container_scope=node", "plugstack.conf: container_scope must be global or job, not 'node'"},
           Case{"container_scope=", "container_scope must be global or job, not ''"},
           Case{"use_squashfuse=2", "use_squashfuse must be 1, true, yes, y, or 0, false, no, n, not '2'"},
           Case{"execute_entrypoint=on", "execute_entrypoint must be 1,"},
           Case{"sbatch_support=YES", "sbatch_support must be 1,"},
           Case{"use_enroot_load=maybe", "use_enroot_load must be 1,"},
           Case{"prolog_prefetch=srun", "prolog_prefetch must be 1, 0 or all, not 'srun'"},
           Case{"importer=bin/x", "plugstack.conf: importer must be an absolute path, not 'bin/x'"},
           Case{"importer=", "importer must be an absolute path, not ''"},
       }) {
    INFO(c.word);
    const auto config = parse({c.word});
    REQUIRE_FALSE(config);
    CHECK(config.error().kind() == ErrorKind::usage);
    CHECK(config.error().code() == ErrorCode::site_config);
    CHECK_THAT(config.error().text(), Catch::Contains(c.text));
  }
}

TEST_CASE("plugstack.conf: every key is in the sample") {
  const std::string sample = test::slurp(SITULA_SOURCE_DIR "/conf/plugstack.conf.d/situla.conf");
  const std::string hint = parse({"zzzzzzzz=1"}).error().hint();
  const auto words = split_words(std::string_view(hint).substr(hint.find(": ") + 2));
  REQUIRE(words.size() == 8);
  for (const std::string_view word : words) {
    const std::string key(word.substr(0, word.find(',')));
    INFO(key);
    CHECK(sample.find("#   " + key + "=") != std::string::npos);
  }
}
