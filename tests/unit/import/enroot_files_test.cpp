// Do /etc/rc, /etc/fstab and /etc/environment say what COMPAT.md 5 wants?
#include "hooks/import/enroot_files.hpp"

#include <catch2/catch.hpp>

using namespace situla;

TEST_CASE("rc of a full configuration") {
  ImageConfig config;
  config.entrypoint = {"/bin/tool", "it's", "$x"};
  config.command = {"-a", ""};
  config.workdir = "/work \"dir\" $HOME";
  config.labels = {{"b", "two\nlines"}, {"a", "1"}};
  CHECK(make_rc(config, "docker://r/x:1") ==
        "# enroot-provenance: docker://r/x:1\n# b two\n# lines\n# a 1\n\n"
        "[ -d \"/work \\\"dir\\\" \\$HOME\" ] || mkdir -p \"/work \\\"dir\\\" \\$HOME\" 2> /dev/null\n"
        "cd \"/work \\\"dir\\\" \\$HOME\" && unset OLDPWD || exit 1\n\n"
        "if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n"
        "if [ $# -gt 0 ]; then\n    exec '/bin/tool' 'it'\\''s' '$x' \"$@\"\n"
        "else\n    exec '/bin/tool' 'it'\\''s' '$x' '-a' ''\nfi\n");
}

TEST_CASE("rc without entrypoint and command runs a shell") {
  const std::string rc = make_rc(ImageConfig(), "x");
  CHECK(rc.find("cd \"/\" && unset OLDPWD") != std::string::npos);
  CHECK(rc.find("then\n    exec \"$@\"\nelse\n    exec '/bin/sh'\nfi\n") != std::string::npos);
}

TEST_CASE("fstab and environment") {
  ImageConfig config;
  config.volumes = {"/data", "/with blank", "relative"};
  config.environment = {"A=1", "B=two words"};
  CHECK(make_fstab(config) ==
        "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"
        "${ENROOT_ROOTFS}/with\\040blank /with\\040blank none x-create=dir,bind,rw,nosuid,nodev\n");
  CHECK(make_environment(config) == "A=1\nB=two words\n");
}
