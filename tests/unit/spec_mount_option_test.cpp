// Does --container-mounts mean what COMPAT.md section 1 says?
#include <catch2/catch.hpp>

#include "common/spec/mount_option.hpp"

using namespace situla;

namespace {

/// The option as fstab lines, or the error.
std::vector<std::string> lines(std::string_view value) {
  const auto options = parse_mount_options(value);
  if (!options) return {options.error().message()};
  std::vector<std::string> result;
  for (const MountOption& option : *options) result.push_back(option.fstab_line());
  return result;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("entries of --container-mounts") {
  CHECK(lines("/a") == Lines{"/a /a none x-create=auto,rbind"});
  CHECK(lines("/a:/b") == Lines{"/a /b none x-create=auto,rbind"});
  CHECK(lines("/a:/b:") == Lines{"/a /b none x-create=auto,rbind"});
  CHECK(lines("/a:/b:ro+rprivate") == Lines{"/a /b none x-create=auto,rbind,ro,rprivate"});
  CHECK(lines("./rel:./x") == Lines{"./rel ./x none x-create=auto,rbind"});
  CHECK(lines(".") == Lines{". . none x-create=auto,rbind"});
  CHECK(lines("../up:/b") == Lines{"../up /b none x-create=auto,rbind"});
  CHECK(lines("tmpfs:/scratch") == Lines{"tmpfs /scratch tmpfs x-create=dir"});
  CHECK(lines("tmpfs:/scratch:size=1G+mode=700") == Lines{"tmpfs /scratch tmpfs x-create=dir,size=1G,mode=700"});
  CHECK(lines("umount:/sys") == Lines{"none /sys none x-detach"});
  CHECK(lines("/scratch/$USER:${HOME}/x") == Lines{"/scratch/$USER ${HOME}/x none x-create=auto,rbind"});
  CHECK(lines("$SCRATCH:/scratch") == Lines{"$SCRATCH /scratch none x-create=auto,rbind"});
  CHECK(lines("/with blank:/b") == Lines{"/with\\040blank /b none x-create=auto,rbind"});
  CHECK(lines("/$(id):/b") == Lines{"/$(id) /b none x-create=auto,rbind"});
}

TEST_CASE("exact repetitions are dropped, order is kept") {
  CHECK(lines("/a:/b,/c,/a:/b,/a:/b:ro").size() == 3);
  CHECK(lines("/b,/a").front() == "/b /b none x-create=auto,rbind");
}

TEST_CASE("what is no mount") {
  for (const char* value :
       {"", ",", "/a,", ":/b", "/a:", "/a::ro", "name", "name:/b", "tmpfs", "umount", "/a:b", "-x:/b"}) {
    INFO(value);
    const auto options = parse_mount_options(value);
    REQUIRE_FALSE(options);
    CHECK(options.error().kind() == ErrorKind::usage);
    CHECK_FALSE(options.error().hint().empty());
  }
}
