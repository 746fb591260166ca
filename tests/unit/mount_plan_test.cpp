// Does a plan refuse what cannot be mounted before anything is?
#include <catch2/catch.hpp>

#include "hooks/mount/fstab.hpp"
#include "hooks/mount/plan.hpp"

using namespace situla;

namespace {

MountStep step(const std::string& line, const std::string& origin = "test") {
  auto entry = parse_fstab_line(line, origin);
  REQUIRE(entry);
  return entry->step;
}

Result<MountStep> checked(const std::string& line) {
  MountPlan plan("/cwd");
  TRY(plan.add(step(line)));
  return plan.steps().front();
}

}  // namespace

TEST_CASE("targets in their normal form") {
  CHECK(*normal_target("/") == "/");
  CHECK(*normal_target("x") == "/x");
  CHECK(*normal_target("./x//y/./z/") == "/x/y/z");
  CHECK(*normal_target("/a/../b") == "/b");
  CHECK(*normal_target("/a/b/../..") == "/");
  for (const char* path : {"..", "/..", "../home", "/a/../..", "/a/../../b"}) {
    INFO(path);
    const auto target = normal_target(path);
    REQUIRE_FALSE(target);
    CHECK(target.error().errnum() == EXDEV);
    CHECK_THAT(target.error().message(), Catch::Contains("ross-device link"));
  }
}

TEST_CASE("covering an earlier mount is allowed; beneath a file is not") {
  MountPlan plan("/");
  CHECK(plan.add(step("tmpfs /tmp tmpfs x-create=dir", "built-in")));
  CHECK(plan.add(step("/tmp /tmp none bind", "user")));
  CHECK(plan.add(step("/etc/hosts /etc/hosts none x-create=file,bind", "built-in")));
  const auto conflict = plan.add(step("/x /etc/hosts/x none bind", "user"));
  REQUIRE_FALSE(conflict);
  CHECK_THAT(conflict.error().message(),
             Catch::Contains("user") && Catch::Contains("built-in") && Catch::Contains("/etc/hosts"));
  CHECK(plan.add(step("/etc /etc none bind", "user")));
  CHECK(plan.add(step("/x /etc/hosts/x none bind", "user")));
  CHECK(plan.steps().size() == 5);
}

TEST_CASE("exact repetitions are dropped unless something came between") {
  MountPlan plan("/");
  CHECK(plan.add(step("/a /x none bind")));
  CHECK(plan.add(step("/a /x none bind")));
  CHECK(plan.steps().size() == 1);
  CHECK(plan.add(step("/b /x none bind")));
  CHECK(plan.add(step("/a /x none bind")));
  CHECK(plan.steps().size() == 3);
  CHECK(plan.add(step("none /x none x-detach")));
  CHECK(plan.add(step("none /x none x-detach")));
  CHECK(plan.steps().size() == 5);
}

TEST_CASE("adding makes sources absolute and targets normal") {
  CHECK_FALSE(checked("./data ../x/../y"));
  const auto good = checked("./data /x/../y");
  REQUIRE(good);
  CHECK(good->source == "/cwd/./data");
  CHECK(good->target == "/y");
  CHECK(describe(*good) == "bind /cwd/./data on /y [recursive, create]  (test)");
}

TEST_CASE("steps that cannot work") {
  CHECK_FALSE(checked("tmpfs /x tmpfs x-create=file"));
  CHECK_FALSE(checked("none / none x-detach"));
  CHECK_THAT(checked("/a ../home").error().message(), Catch::StartsWith("test: "));
  CHECK(checked("/a ../home").error().code() == ErrorCode::mount_syntax);
  CHECK(checked("none / none x-detach").error().code() == ErrorCode::mount_syntax);
}

TEST_CASE("what devices need is checked like every other step") {
  const auto added = [](MountStep step) {
    MountPlan plan("/cwd");
    const auto done = plan.add(std::move(step));
    return done ? describe(plan.steps().front()) : done.error().message();
  };
  MountStep node{.kind = StepKind::device, .source = "/dev/gpu", .target = "/dev/../dev/gpu", .origin = "test"};
  node.number = DeviceNumber{'c', 195, 0};
  CHECK(added(node) == "device /dev/gpu on /dev/gpu (c 195:0)  (test)");
  node.source = "gpu";
  CHECK_THAT(added(node), Catch::Contains("not an absolute path"));
  CHECK_THAT(added({.kind = StepKind::cover, .target = "/../x", .origin = "test"}), Catch::StartsWith("test: "));
  CHECK(added({.kind = StepKind::cover, .target = "/x", .flags = {.read_only = true}}) == "cover /x [ro]");
  CHECK_THAT(added({.kind = StepKind::cover, .target = ""}), Catch::Contains("no target"));
}

TEST_CASE("a description cannot write to a terminal") {
  MountStep hostile = step("/a /b");
  hostile.source = "/a\033[2J";
  CHECK(describe(hostile).find('\033') == std::string::npos);
}

TEST_CASE("no field may end where its reader does not see it") {
  for (const char* line :
       {"/a\\000b /c none bind", "/a /b\\000c none bind", "none /a tmpfs\\000x", "none /a tmpfs size=1\\000k"}) {
    INFO(line);
    const auto added = checked(line);
    REQUIRE_FALSE(added);
    CHECK_THAT(added.error().message(), Catch::Contains("NUL byte"));
  }
}
