// Is an environment an ordered list in which the later definition wins, and does expansion know names only?
#include <catch2/catch.hpp>

#include "common/spec/environment.hpp"

using namespace situla;
using namespace std::string_literals;

TEST_CASE("definitions from envp and from a block") {
  const char* const envp[] = {"A=1", "B=", "no equals", "=x", "C=a=b", "A=2", nullptr};
  const Environment environment = Environment::from_envp(envp);
  CHECK(environment.block() == "A=2\0B=\0C=a=b\0"s);
  CHECK(Environment::from_envp(nullptr).entries().empty());
  CHECK(Environment::from_block("A=1\0\0B=2"s).block() == "A=1\0B=2\0"s);
  CHECK(Environment::from_block("").entries().empty());
  CHECK(Environment::from_block(environment.block()).block() == environment.block());
}

TEST_CASE("set, unset, merge") {
  Environment environment;
  environment.set("A", "1");
  environment.set("B", "2");
  environment.set("A", "3");
  CHECK(environment.strings() == std::vector<std::string>{"A=3", "B=2"});
  environment.unset("A");
  CHECK_FALSE(environment.has("A"));
  Environment other;
  other.set("B", "4");
  other.set("C", "5");
  environment.merge(other);
  CHECK(environment.strings() == std::vector<std::string>{"B=4", "C=5"});
  CHECK(environment.get_or("X", "default") == "default");
  environment.set("", "x");
  environment.set("A=B", "x");
  environment.set("N", "a\0b"s);
  CHECK(environment.entries().size() == 2);
}

TEST_CASE("many definitions take no quadratic time") {
  std::string block;
  for (int i = 0; i < 200000; ++i) block += "V" + std::to_string(i) + "=x" + '\0';
  CHECK(Environment::from_block(block).entries().size() == 200000);
}

TEST_CASE("a leading ~ is the home directory") {
  Environment environment;
  CHECK(expand_home("~/x", environment) == "~/x");
  environment.set("HOME", "/home/me");
  CHECK(expand_home("~", environment) == "/home/me");
  CHECK(expand_home("~/", environment) == "/home/me/");
  CHECK(expand_home("~/x y", environment) == "/home/me/x y");
  for (const char* path : {"", "/x/~", "./~", "~you", "~you/x", "x~/"}) CHECK(expand_home(path, environment) == path);
  environment.set("HOME", "");
  CHECK(expand_home("~", environment) == "~");
}

TEST_CASE("expansion of variables") {
  Environment environment;
  environment.set("A", "1");
  environment.set("LONG_name2", "x y");
  const std::vector<std::pair<std::string, std::string>> table = {{"", ""},
                                                                  {"plain", "plain"},
                                                                  {"$A", "1"},
                                                                  {"${A}", "1"},
                                                                  {"$A$A", "11"},
                                                                  {"$AB", ""},
                                                                  {"${A}B", "1B"},
                                                                  {"$A-B", "1-B"},
                                                                  {"/s/$LONG_name2/", "/s/x y/"},
                                                                  {"\\$A", "$A"},
                                                                  {"$", "$"},
                                                                  {"$$", "$$"},
                                                                  {"$1", "$1"},
                                                                  {"${", "${"},
                                                                  {"${A", "${A"},
                                                                  {"${}", "${}"},
                                                                  {"${A:-x}", "${A:-x}"},
                                                                  {"$(id)", "$(id)"},
                                                                  {"`id`", "`id`"},
                                                                  {"a\\b", "a\\b"},
                                                                  {"${UNSET}x", "x"},
                                                                  {"\\\\$A", "\\$A"},
                                                                  {"$A\\", "1\\"}};
  for (const auto& [text, expected] : table) {
    INFO(text);
    CHECK(expand_variables(text, environment) == expected);
  }
}

TEST_CASE("references of environment files") {
  const auto lookup = [](std::string_view name) -> std::optional<std::string> {
    if (name == "A") return "1";
    if (name == "EMPTY") return "";
    return std::nullopt;
  };
  const std::vector<std::pair<std::string, std::string>> table = {{"", ""},
                                                                  {"plain", "plain"},
                                                                  {"${A}", "1"},
                                                                  {"$A$A", "11"},
                                                                  {"$A-B", "1-B"},
                                                                  {"${EMPTY}", ""},
                                                                  {"${EMPTY:-x}", "x"},
                                                                  {"${NO:-}", ""},
                                                                  {"${NO:-a:-b}", "a:-b"},
                                                                  {"${NO:-$A}", "$A"},
                                                                  {"$${A}", "${A}"},
                                                                  {"$$A", "$A"},
                                                                  {"$$$A", "$1"},
                                                                  {"$", "$"},
                                                                  {"$1", "$1"},
                                                                  {"$(id)", "$(id)"},
                                                                  {"\\$A", "\\1"}};
  for (const auto& [text, expected] : table) {
    INFO(text);
    CHECK(expand_references(text, lookup) == expected);
  }
  for (const char* text : {"$NO", "${NO}", "${", "${A", "${}", "${1}", "${A-x}", "${A:x}", "${A b}"}) {
    INFO(text);
    CHECK_FALSE(expand_references(text, lookup));
  }
}

TEST_CASE("an srun that is to have no container gets nothing that says so, or where its output goes") {
  const Environment plain = for_plain_step(Environment::from_strings(
      {"SITULA_CONTAINER_IMAGE=x", "PYXIS_CONTAINER_NAME=x", "SLURM_SITULA_PARTS=x",
       "_SLURM_SPANK_OPTION_pyxis_container_image=x", "SLURM_SPANK__SLURM_SPANK_OPTION_situla_container_image=x",
       "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image=x", "SLURM_LABELIO=1", "SLURM_STDOUTMODE=x",
       "SLURM_SPANK_OTHER=1", "SLURM_JOB_ID=7", "PATH=/bin"}));
  CHECK(plain.strings() == std::vector<std::string>{"SLURM_SPANK_OTHER=1", "SLURM_JOB_ID=7", "PATH=/bin"});
}

TEST_CASE("names of variables") {
  for (const char* name : {"A", "_", "a1", "A_B"}) CHECK(is_variable_name(name));
  for (const char* name : {"", "1", "1A", "A-B", "A B", "A=", "é"}) CHECK_FALSE(is_variable_name(name));
}
