// What of the job's environment prepares a container, and how are environment files read? COMPAT.md 2 and 6.1.
#include <catch2/catch.hpp>

#include "hooks/run/container_environment.hpp"
#include "hooks/run/enter.hpp"
#include "hooks/run/rc_script.hpp"
#include "hooks/run/subordinate_groups.hpp"
#include "hooks/scripts/definitions.hpp"

using namespace situla;

TEST_CASE("the job's environment without what pyxis takes away") {
  Environment job;
  const std::vector<std::string> removed = {"PATH",
                                            "LD_LIBRARY_PATH",
                                            "LD_PRELOAD",
                                            "SLURM_PROCID",
                                            "SLURM_LOCALID",
                                            "SLURM_TASK_PID",
                                            "PMIX_RANK",
                                            "PMI_FD",
                                            "ENROOT_LIBRARY_PATH",
                                            "ENROOT_SYSCONF_PATH",
                                            "ENROOT_RUNTIME_PATH",
                                            "ENROOT_CACHE_PATH",
                                            "ENROOT_DATA_PATH",
                                            "ENROOT_TEMP_PATH",
                                            "ENROOT_ZSTD_OPTIONS",
                                            "ENROOT_TRANSFER_RETRIES",
                                            "ENROOT_CONNECT_TIMEOUT",
                                            "ENROOT_MAX_CONNECTIONS",
                                            "ENROOT_ALLOW_HTTP"};
  const std::vector<std::string> kept = {
      "ENROOT_CONFIG_PATH", "ENROOT_SQUASH_OPTIONS", "ENROOT_RESTRICT_DEV", "TMPDIR", "HOME",
      "XDG_DATA_HOME",      "https_proxy",           "SLURM_JOB_ID",        "LANG"};
  for (const auto& names : {removed, kept})
    for (const std::string& name : names) job.set(name, "x");
  const Environment prepared = preparation_environment(job);
  for (const std::string& name : removed) CHECK_FALSE(prepared.has(name));
  for (const std::string& name : kept) CHECK(prepared.has(name));
}

TEST_CASE("the host's language stays outside unless asked for") {
  Environment job;
  for (const char* name : {"LANG", "LANGUAGE", "LC_ALL", "LC_TIME"}) job.set(name, "x");
  CHECK(without_host_language(job, {"LC_ALL"}).strings() == std::vector<std::string>{"LC_ALL=x", "LC_TIME=x"});
}

TEST_CASE("lines of environment files") {
  Environment host;
  host.set("H", "host");
  const std::vector<std::pair<std::string, std::string>> table = {
      {"A=1", "1"},           {"  A=1", "1"},         {"A=", ""},           {"A=\"x y\"", "x y"}, {"A='x'", "x"},
      {"A=\"x\"  ", "x"},     {"A=x\"y\"", "x\"y\""}, {"A=${H}", "host"},   {"A=$H", "$H"},       {"A=${NO}", ""},
      {"A=\"${H}\"", "host"}, {"A=b=c", "b=c"},       {"A=1 # c", "1 # c"}, {"A=0\nA=1", "1"},    {"A=\"", "\""}};
  for (const auto& [text, expected] : table) {
    INFO(text);
    Environment environment;
    add_definitions(environment, text, host);
    CHECK(environment.get("A") == expected);
  }
  for (const char* text : {"#A=1", "A", "A =1", "1A=1", "export A=1", "=1", "ENROOT_A=1", ""}) {
    INFO(text);
    Environment environment;
    add_definitions(environment, text, host);
    CHECK(environment.entries().empty());
  }
}

TEST_CASE("-e words and --container-env") {
  Environment host;
  host.set("H", "host");
  host.set("EMPTY", "");
  Environment environment;
  add_words(environment, {"A=1", "H", "NO", "ENROOT_X=1", "1=2"}, host);
  CHECK(environment.strings() == std::vector<std::string>{"A=1", "H=host", "NO="});
  CHECK(kept_variables(host, {"H", "EMPTY", "NO"}).strings() == std::vector<std::string>{"H=host"});
}

TEST_CASE("rc.local in /etc/rc") {
  CHECK(redirect_rc_local("if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n# /etc/rc.local\n", "/H") ==
        "if [ -s /H ]; then\n    . /H\nfi\n# /etc/rc.local\n");
  CHECK(redirect_rc_local("\n[ -s \"/etc/rc.local\" ] && . '/etc/rc.local'; x", "/H") ==
        "\n[ -s \"/H\" ] && . '/H'; x");
  CHECK_FALSE(redirect_rc_local("exec /bin/sh\n", "/H"));
  CHECK_FALSE(redirect_rc_local(". /etc/rc.local.d/x\n# /etc/rc.local\n", "/H"));
}

TEST_CASE("the directory of /etc/rc, for images without a shell") {
  CHECK(rc_directory("mkdir -p \"/a\" 2> /dev/null\ncd \"/a b\" && unset OLDPWD || exit 1\n") == "/a b");
  CHECK(rc_directory("cd '/it'\\''s' && x\n") == "/it's");
  CHECK(rc_directory("cd \"/\\$HOME\\\"\" || exit 1\n") == "/$HOME\"");
  CHECK(rc_directory("  cd -- /x; y\n") == "/x");
  CHECK_FALSE(rc_directory("exec /bin/sh\n# cd /x\n"));
}

TEST_CASE("variables of an environment file stand above the image's, which its references mean first") {
  Environment image, host;
  image.set("PATH", "/image/bin");
  image.set("GONE", "x");
  image.set("OLD", "image");
  host.set("OLD", "host");
  host.set("SCRATCH", "/scratch");
  REQUIRE(add_file_variables(image,
                             {"PATH=${PATH}:/opt/bin", "OLD=new", "COPY=$OLD", "DATA=${SCRATCH}/${NO:-data}",
                              "GONE=", "PRICE=$$5", "ENROOT_X=1"},
                             host));
  CHECK(image.strings() == std::vector<std::string>{"PATH=/image/bin:/opt/bin", "OLD=new", "COPY=image",
                                                    "DATA=/scratch/data", "PRICE=$5"});
  const auto unknown = add_file_variables(image, {"A=${UNKNOWN}"}, host);
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message() == "--environment: env A: variable UNKNOWN is not set");
}

TEST_CASE("subgid(5) lets a user map his groups by his name or number") {
  const std::string database =
      "alice:100000:65536\nbob:5000:10\n# comment\nalice:5001:1\n1000:5003:2\nbroken:1\nalice:x:1\nalice:5008:\n";
  const std::vector<gid_t> groups = {4, 5000, 5001, 5003, 5004, 5005, 5008, 100001};
  CHECK(allowed_groups(database, 1000, "alice", groups) == std::vector<gid_t>{5001, 5003, 5004, 100001});
  CHECK(allowed_groups(database, 1000, "", groups) == std::vector<gid_t>{5003, 5004});
  CHECK(allowed_groups(database, 1, "carol", groups).empty());
  CHECK(allowed_groups("alice:4294967290:100\n", 1, "alice", {4294967294}) == std::vector<gid_t>{4294967294});
}
