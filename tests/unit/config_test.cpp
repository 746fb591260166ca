// enroot.conf as sites write it: COMPAT.md section 4, line by line.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/config/enroot_config.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A sysconf directory of its own and the environment that points to it.
struct Site {
  test::TempDir dir;
  test::MemoryLog log;
  Environment environment;

  Site() {
    environment.set("ENROOT_SYSCONF_PATH", dir.path());
    environment.set("PATH", "/usr/bin:/bin");
    environment.set("HOME", "/home/ada");
  }
  explicit Site(const std::string& enroot_conf) : Site() { dir.write("enroot.conf", enroot_conf); }

  EnrootConfig load() {
    auto config = EnrootConfig::load(environment, log);
    if (!config) FAIL(config.error().text());
    return *config;
  }
};

}  // namespace

TEST_CASE("a line is KEY value or KEY=value, and the value is what eval echo prints") {
  struct Case {
    const char* line;
    std::string value;
  };
  const std::string uid = std::to_string(getuid());
  for (const Case& c : {
           Case{"ENROOT_X plain", "plain"},
           Case{"ENROOT_X=plain", "plain"},
           Case{"  ENROOT_X\t  plain  ", "plain"},
           Case{"ENROOT_X = plain", "plain"},
           Case{"ENROOT_X plain\r", "plain"},
           Case{"ENROOT_X -noI  -noD   -noF", "-noI -noD -noF"},
           Case{"ENROOT_X=-comp zstd -Xcompression-level 3 -b 1M", "-comp zstd -Xcompression-level 3 -b 1M"},
           Case{"ENROOT_X a=b", "a=b"},
           Case{"ENROOT_X ${HOME}/x", "/home/ada/x"},
           Case{"ENROOT_X $HOME/x", "/home/ada/x"},
           Case{"ENROOT_X ${XDG_DATA_HOME}/enroot", "/home/ada/.local/share/enroot"},
           Case{"ENROOT_X a${NO_SUCH_VARIABLE}b", "ab"},
           Case{"ENROOT_X ${NO_SUCH_VARIABLE:-/tmp}", "/tmp"},
           Case{"ENROOT_X /run/enroot/user-$(id -u)", "/run/enroot/user-" + uid},
           Case{"ENROOT_X /run/user/$UID/enroot", "/run/user/" + uid + "/enroot"},
           Case{"ENROOT_X ${EUID}$HOME$(id -u)/$(id -g)", uid + "/home/ada" + uid + "/" + std::to_string(getgid())},
           Case{"ENROOT_X $(id -u )", uid},
           Case{"ENROOT_X '$(id -u)'", "$(id -u)"},
           Case{"ENROOT_X=`echo back`", "back"},
           Case{"ENROOT_X \"two  words\"", "two  words"},
           Case{"ENROOT_X 'single $HOME'", "single $HOME"},
           Case{"ENROOT_X $((6 * 7))", "42"},
           Case{"ENROOT_X a # comment", "a"},
           Case{"ENROOT_X {a,b}", "a b"},
           Case{"ENROOT_X \\$HOME", "$HOME"},
           Case{"ENROOT_X -1", "-1"},
           Case{"ENROOT_X -n", ""},
           Case{"ENROOT_X $(printf 'a\\nb')", "a b"},
       }) {
    INFO(c.line);
    Site site(std::string(c.line) + "\n");
    CHECK(site.load().get("ENROOT_X") == c.value);
    CHECK(site.log.messages.empty());
  }
}

TEST_CASE("what sites write needs no shell") {
  Environment environment;
  environment.set("HOME", "/home/ada");
  const std::string uid = std::to_string(geteuid());
  CHECK(evaluate_plainly("/local/$(id -u)/$HOME-$(id -g)", environment) ==
        "/local/" + uid + "//home/ada-" + std::to_string(getegid()));
  CHECK(evaluate_plainly("/run/user/$UID ${EUID}", environment) == "/run/user/" + uid + " " + uid);
  for (const char* other :
       {"$(id -un)", "$(id -u ", "$ (id -u)", "$HOME$(id)", "$$(id -u)", "${$(id -u)}", "$PATH", "`id -u`"}) {
    INFO(other);
    CHECK_FALSE(evaluate_plainly(other, environment));
  }
}

TEST_CASE("exactly these keys are read") {
  for (const char* key :
       {"ENROOT_DATA_PATH", "ENROOT_ANYTHING_AT_ALL", "MELLANOX_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
        "SSL_CERT_DIR", "SSL_CERT_FILE", "all_proxy", "no_proxy", "http_proxy", "https_proxy"}) {
    INFO(key);
    Site site(std::string(key) + " value\n");
    CHECK(site.load().get(key) == "value");
    CHECK(site.load().values().count(key) == 1);
    CHECK(site.log.messages.empty());
  }
  for (const char* key : {"PATH", "LD_PRELOAD", "ENROOT_", "ENROOT_lower", "enroot_data_path", "HTTP_PROXY", "SSL_CERT",
                          "ftp_proxy", "export", "ENROOT-X", "ENROOT_A;id"}) {
    INFO(key);
    Site site(std::string(key) + " value\n");
    CHECK(site.load().values().count(key) == 0);
    CHECK(site.log.count(LogLevel::warning, "enroot.conf:1: ignoring unknown key") == 1);
  }
}

TEST_CASE("comments and blank lines are nothing, a missing file and directory neither") {
  Site site("\n# ENROOT_X 1\n   # ENROOT_X 2\n\t\n#ENROOT_X 3\n");
  CHECK(site.load().get("ENROOT_X").empty());
  Site empty;
  CHECK(empty.load().values().size() == 1);  // ENROOT_SYSCONF_PATH itself
  CHECK(empty.log.messages.empty());
}

TEST_CASE("a flag is yes or no") {
  Site site("ENROOT_LOGIN_SHELL maybe\n");
  const auto checked = site.load().check_flags(site.log);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().code() == ErrorCode::enroot_config);
  Site good("ENROOT_LOGIN_SHELL no\n");
  CHECK(good.load().check_flags(good.log));
}

TEST_CASE("the last line counts without a newline") {
  Site site("ENROOT_X 1\nENROOT_Y 2");
  CHECK(site.load().get("ENROOT_Y") == "2");
}

TEST_CASE("the first definition wins, enroot.conf before enroot.conf.d in name order") {
  Site site("ENROOT_A main\nENROOT_A again\nENROOT_EMPTY\nENROOT_EMPTY=\n");
  site.dir.write("enroot.conf.d/20-second.conf", "ENROOT_B second\nENROOT_C second\nENROOT_A second\n");
  site.dir.write("enroot.conf.d/10-first.conf", "ENROOT_B first\nENROOT_EMPTY drop-in\n");
  site.dir.write("enroot.conf.d/30-note.txt", "ENROOT_D no\n");
  site.dir.write("enroot.conf.d/.hidden.conf", "ENROOT_D no\n");
  const EnrootConfig config = site.load();
  CHECK(config.get("ENROOT_A") == "main");
  CHECK(config.get("ENROOT_B") == "first");
  CHECK(config.get("ENROOT_C") == "second");
  CHECK(config.get("ENROOT_D").empty());
  CHECK(config.get("ENROOT_EMPTY") == "drop-in");
}

TEST_CASE("a value may use a key defined before it, in the plain way and through the shell") {
  Site plain("ENROOT_A /base\nENROOT_B ${ENROOT_A}/x\n");
  CHECK(plain.load().get("ENROOT_B") == "/base/x");
  Site shell("ENROOT_A $(echo /base)\nENROOT_B ${ENROOT_A}/x\nENROOT_C ${ENROOT_B#/}\n");
  const EnrootConfig config = shell.load();
  CHECK(config.get("ENROOT_B") == "/base/x");
  CHECK(config.get("ENROOT_C") == "base/x");
}

TEST_CASE("the environment beats the files unless it is empty") {
  for (const char* value : {"file", "$(echo file)"}) {
    INFO(value);
    Site site("ENROOT_SET " + std::string(value) + "\nENROOT_UNSET " + value + "\nhttp_proxy " + value + "\n");
    site.environment.set("ENROOT_SET", "environment");
    site.environment.set("ENROOT_UNSET", "");
    site.environment.set("http_proxy", "http://proxy:3128");
    const EnrootConfig config = site.load();
    CHECK(config.get("ENROOT_SET") == "environment");
    CHECK(config.get("ENROOT_UNSET") == "file");
    CHECK(config.get("http_proxy") == "http://proxy:3128");
  }
}

TEST_CASE("what the environment sets counts without any file; other variables are not taken") {
  Site site;
  site.environment.set("ENROOT_MOUNT_HOME", "y");
  site.environment.set("NVIDIA_VISIBLE_DEVICES", "all");
  site.environment.set("LD_PRELOAD", "/x.so");
  const EnrootConfig config = site.load();
  CHECK(config.get("ENROOT_MOUNT_HOME") == "y");
  CHECK(config.values().count("NVIDIA_VISIBLE_DEVICES") == 1);
  CHECK(config.values().count("LD_PRELOAD") == 0);
  CHECK(config.values().count("HOME") == 0);
}

TEST_CASE("a value that the shell cannot evaluate warns and spoils nothing else") {
  Site site("ENROOT_A $(echo a)\nENROOT_BAD ${oops\nENROOT_WORSE ) ; rm -rf /nonexistent\nENROOT_B $(echo b)\n");
  const EnrootConfig config = site.load();
  CHECK(config.get("ENROOT_A") == "a");
  CHECK(config.get("ENROOT_B") == "b");
  CHECK(config.get("ENROOT_BAD").empty());
  CHECK(site.log.count(LogLevel::warning, "enroot.conf:2: evaluating the value of ENROOT_BAD") == 1);
  CHECK(site.log.count(LogLevel::warning, "enroot.conf:3: evaluating the value of ENROOT_WORSE") == 1);
}

TEST_CASE("BASH_ENV of the job does not run in the configuration's shell") {
  Site site("ENROOT_A $(echo a)\n");
  site.environment.set("BASH_ENV", site.dir.write("bash_env", "echo intruder\n"));
  CHECK(site.load().get("ENROOT_A") == "a");
}

TEST_CASE("false is exactly ten spellings; everything else is true; empty follows the fallback") {
  for (const char* value : {"n", "no", "N", "No", "NO", "f", "F", "false", "False", "FALSE"}) {
    INFO(value);
    Site site("ENROOT_X " + std::string(value) + "\n");
    CHECK_FALSE(site.load().flag("ENROOT_X", true));
  }
  for (const char* value : {"y", "yes", "1", "0", "off", "nO", "fALSE", "none", "disabled"}) {
    INFO(value);
    Site site("ENROOT_X " + std::string(value) + "\n");
    CHECK(site.load().flag("ENROOT_X", false));
  }
  Site site;
  CHECK(site.load().flag("ENROOT_X", true));
  CHECK_FALSE(site.load().flag("ENROOT_X", false));
}

TEST_CASE("enroot's defaults") {
  Site site;
  const EnrootConfig config = site.load();
  CHECK(config.data_path() == "/home/ada/.local/share/enroot");
  CHECK(config.cache_path() == "/home/ada/.cache/enroot");
  CHECK(config.config_path() == "/home/ada/.config/enroot");
  CHECK(config.runtime_path() == "/tmp/enroot-" + std::to_string(getuid()));
  CHECK(config.temp_path() == "/tmp");
  CHECK(config.sysconf_path() == site.dir.path());
  CHECK(config.flag("ENROOT_LOGIN_SHELL"));
  CHECK_FALSE(config.flag("ENROOT_ROOTFS_WRITABLE"));
  CHECK(config.get("ENROOT_MAX_CONNECTIONS") == "10");
  CHECK(config.get("ENROOT_SQUASH_OPTIONS").empty());

  site.environment.set("XDG_DATA_HOME", "/data");
  site.environment.set("XDG_RUNTIME_DIR", "/run/user/7");
  site.environment.set("TMPDIR", "/scratch");
  site.environment.set("ENROOT_CACHE_PATH", "/cache");
  const EnrootConfig moved = site.load();
  CHECK(moved.data_path() == "/data/enroot");
  CHECK(moved.runtime_path() == "/run/user/7/enroot");
  CHECK(moved.temp_path() == "/scratch");
  CHECK(moved.cache_path() == "/cache");
}

TEST_CASE("without HOME the password database knows the home directory") {
  Site site;
  site.environment.unset("HOME");
  CHECK(site.load().data_path().find("/.local/share/enroot") != std::string::npos);
}
