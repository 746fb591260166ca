// Does --container-mounts mean what COMPAT.md section 1 says?
#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/spec/mount_option.hpp"

using namespace situla;

namespace {

/// The options, "SOURCE TARGET FLAGS" each, or the error.
std::vector<std::string> lines(std::string_view value) {
  const auto options = parse_mount_options(value);
  if (!options) return {options.error().message()};
  std::vector<std::string> result;
  for (const MountOption& option : *options) {
    const std::string source = option.kind == MountOption::Kind::tmpfs    ? "(tmpfs)"
                               : option.kind == MountOption::Kind::umount ? "(umount)"
                                                                          : option.source;
    result.push_back(source + " " + option.target + " " + join(option.flags, ","));
  }
  return result;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("entries of --container-mounts") {
  CHECK(lines("/a") == Lines{"/a /a x-create=auto,rbind"});
  CHECK(lines("/a:/b") == Lines{"/a /b x-create=auto,rbind"});
  CHECK(lines("/a:/b:") == Lines{"/a /b x-create=auto,rbind"});
  CHECK(lines("/a:/b:ro+rprivate") == Lines{"/a /b x-create=auto,rbind,ro,rprivate"});
  CHECK(lines("./rel:./x") == Lines{"./rel ./x x-create=auto,rbind"});
  CHECK(lines(".") == Lines{". . x-create=auto,rbind"});
  CHECK(lines("../up:/b") == Lines{"../up /b x-create=auto,rbind"});
  CHECK(lines("tmpfs:/scratch") == Lines{"(tmpfs) /scratch x-create=dir"});
  CHECK(lines("tmpfs:/scratch:size=1G+mode=700") == Lines{"(tmpfs) /scratch x-create=dir,size=1G,mode=700"});
  CHECK(lines("umount:/sys") == Lines{"(umount) /sys x-detach"});
  CHECK(lines("/scratch/$USER:${HOME}/x") == Lines{"/scratch/$USER ${HOME}/x x-create=auto,rbind"});
  CHECK(lines("$SCRATCH:/scratch") == Lines{"$SCRATCH /scratch x-create=auto,rbind"});
  CHECK(lines("/with blank:/b") == Lines{"/with blank /b x-create=auto,rbind"});
  CHECK(lines("data.sqsh:/data:sqsh") == Lines{"./data.sqsh /data x-create=auto,rbind,sqsh"});
  CHECK(lines("a/b.sqsh/c:/data:noexec+sqsh") == Lines{"./a/b.sqsh/c /data x-create=auto,rbind,noexec,sqsh"});
  CHECK(lines("~/d.sqsh:/data:sqsh") == Lines{"$HOME/d.sqsh /data x-create=auto,rbind,sqsh"});
  CHECK(lines("/$(id):/b") == Lines{"/$(id) /b x-create=auto,rbind"});
}

TEST_CASE("an image of a registry has colons of its own, and a target") {
  CHECK(lines("docker://alpine:/opt/a:image") == Lines{"docker://alpine /opt/a x-create=auto,image"});
  CHECK(lines("docker://python:3.12:/opt/p") == Lines{"docker://python:3.12 /opt/p x-create=auto,image"});
  CHECK(lines("docker://host:5000/a/b:1.0:./p:noexec+image+subpath=usr/lib") ==
        Lines{"docker://host:5000/a/b:1.0 ./p x-create=auto,image,noexec,subpath=usr/lib"});
  CHECK(lines("docker://me@nvcr.io#nvidia/tools:1:$HOME/t:nofail") ==
        Lines{"docker://me@nvcr.io#nvidia/tools:1 $HOME/t x-create=auto,image,nofail"});
  const std::string digest = "docker://a/b@sha256:" + std::string(64, 'a');
  CHECK(lines(digest + ":/b") == Lines{digest + " /b x-create=auto,image"});
  CHECK(lines("docker://a:$TAG:$DIR/b:ro") == Lines{"docker://a:$TAG $DIR/b x-create=auto,image,ro"});
  CHECK(lines("docker://a:1:$DIR:$FLAGS") == Lines{"docker://a:1 $DIR x-create=auto,image,$FLAGS"});
  CHECK(lines("docker://h:5000/a:$DIR/b") == Lines{"docker://h:5000/a $DIR/b x-create=auto,image"});
  CHECK(lines("$IMG:/b:subpath=c") == Lines{"$IMG /b x-create=auto,rbind,subpath=c"});
  CHECK(lines("docker://a:$TAG:/b,/c") == Lines{"docker://a:$TAG /b x-create=auto,image", "/c /c x-create=auto,rbind"});
  CHECK(lines("./d.sqsh:/d:image+subpath=a/b") == Lines{"./d.sqsh /d x-create=auto,rbind,image,subpath=a/b"});
  for (const char* wrong :
       {"docker://alpine", "docker://alpine:3.20", "docker://:/x", "docker://UPPER:/x:image",
        "docker://alpine:/x:size=1g", "/a:/b:subpath=c", "docker://a:/x:subpath=c++", "python:3.12:/opt:image"}) {
    INFO(wrong);
    CHECK_FALSE(parse_mount_options(wrong));
  }
  CHECK_THAT(parse_mount_options("python:/opt:image").error().hint(), Catch::Contains("docker://IMAGE:TAG:/DST:image"));
}

TEST_CASE("no shell expands a ~ behind an option's =") {
  CHECK(lines("~/data:/data") == Lines{"$HOME/data /data x-create=auto,rbind"});
  CHECK(lines("~/data") == Lines{"$HOME/data $HOME/data x-create=auto,rbind"});
  CHECK(lines("/data:~/data:ro") == Lines{"/data $HOME/data x-create=auto,rbind,ro"});
  CHECK(lines("~") == Lines{"$HOME $HOME x-create=auto,rbind"});
  CHECK_FALSE(parse_mount_options("~you/data:/data"));
}

TEST_CASE("a flag that there is not is refused at once, where it is known to be one") {
  const auto refused = parse_mount_options("/a:/b,./c:/d:ro+RO");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text() == "bind ./c on /d: unknown flag \"RO\" [mount-syntax]\nhint: did you mean \"ro\"?");
  CHECK(parse_mount_options("umount:/sys:lazzy").error().line() ==
        "unmount /sys: unknown flag \"lazzy\" [mount-syntax]");
  CHECK(parse_mount_options("/a:/b:size=1G").error().hint() == "flags are those of mount(8): ro, noexec");
  // Parameters of a file system, words of others, and what is known on the node only.
  for (const char* value : {"tmpfs:/x:size=1G+huge=always", "/a:/b:x-mine", "/a:/b:$MODE", "/a:/b:${MODE}+nofail",
                            "/a:/b:sync+nodiratime+rslave"}) {
    INFO(value);
    CHECK(parse_mount_options(value));
  }
}

TEST_CASE("exact repetitions are dropped, order is kept") {
  CHECK(lines("/a:/b,/c,/a:/b,/a:/b:ro").size() == 3);
  CHECK(lines("/b,/a").front() == "/b /b x-create=auto,rbind");
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
  CHECK_THAT(parse_mount_options("data:/mnt").error().hint(), Catch::Contains("write ./data:/mnt"));
  CHECK_THAT(parse_mount_options("“/data:/mnt”").error().hint(), Catch::Contains("curly quotation marks"));
}
