// Environment files: what is in one, what several come to, which of them a name means, and what is wrong with them.
#include "hooks/edf/edf.hpp"

#include <filesystem>

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;
using namespace situla::edf;

namespace {

/// A user's and a site's directory, and a current one.
class Files {
 public:
  Files() {
    for (const char* name : {"user", "site", "work"}) std::filesystem::create_directories(path(name));
    Environment environment;
    environment.set("EDF_PATH", path("user"));
    environment.set("SCRATCH", "/scratch/me");
    environment.set("EMPTY", "");
    places = EdfPlaces::of(environment, path("work"), path("site"));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  void write(const std::string& name, const std::string& text) const { directory_.write(name, text); }
  [[nodiscard]] Edf load(const std::string& name) const {
    auto edf = load_edf(name, places);
    INFO((edf ? std::string() : edf.error().text()));
    REQUIRE(edf);
    return *std::move(edf);
  }
  [[nodiscard]] std::string error(const std::string& name) const {
    const auto edf = load_edf(name, places);
    REQUIRE_FALSE(edf);
    return edf.error().text();
  }

  EdfPlaces places;

 private:
  test::TempDir directory_;
};

std::vector<std::string> messages(const std::string& text) {
  std::vector<std::string> list;
  for (const Error& error : parse_edf(text, "f.toml").problems) list.push_back(error.message());
  return list;
}

using Words = std::vector<std::string>;

/// "ENTRY  (ORIGIN)" each, the origin without the directories of its file.
Words mounts_of(const ResolvedEnvironment& resolved) {
  Words lines;
  for (const MountOfFile& mount : resolved.mounts)
    lines.push_back(mount.entry + "  (" + mount.origin.substr(mount.origin.rfind('/') + 1) + ")");
  return lines;
}

}  // namespace

TEST_CASE("every key of an environment file") {
  const EdfReading whole = parse_edf(R"(base_environment = ["one", "two"]
image = "ubuntu:24.04"
mounts = ["/a:/b",
  "/c:/d:ro"]
writable = false
parallax_path = "/usr/bin/parallax"
[env]
GONE = ""
[annotations.com.hooks.cxi]
enabled = false
port = 15263
)",
                                     "f.toml");
  REQUIRE(whole.problems.empty());
  REQUIRE(whole.file.bases.size() == 2);
  CHECK(whole.file.bases[1].value == "two");
  CHECK(whole.file.image->where == "f.toml:2");
  CHECK(whole.file.mounts[1].where == "f.toml:4");
  CHECK_FALSE(whole.file.writable->value);
  CHECK_FALSE(whole.file.entrypoint);
  CHECK(whole.file.env.at("GONE").value.empty());
  CHECK(whole.file.annotations.at("com.hooks.cxi.enabled").value == "false");
  CHECK(whole.file.annotations.at("com.hooks.cxi.port").value == "15263");
  CHECK(whole.file.ignored.at(0).value == "parallax_path");
}

TEST_CASE("what is wrong in a file is said with its line, all of it") {
  CHECK(messages("image = 1\nwritable = \"yes\"\nimag = \"x\"\n") == Words{"f.toml:1: image must be a string",
                                                                           "f.toml:2: writable must be true or false",
                                                                           "f.toml:3: unknown key \"imag\""});
  CHECK(parse_edf("imag = \"x\"", "f.toml").problems[0].hint().starts_with("did you mean \"image\"?"));
  CHECK(parse_edf("imag = \"x\"", "f.toml").problems[0].code() == ErrorCode::environment_file);
  CHECK(messages("mounts = \"/a:/b\"") == Words{"f.toml:1: mounts must be a list of strings"});
  CHECK(messages("mounts = [\"/a:/b\",\n 5]") == Words{"f.toml:2: an entry of mounts must be a string"});
  CHECK(messages("base_environment = 3") == Words{"f.toml:1: base_environment must be a list of strings, or a string"});
  CHECK(messages("[env]\nA = 1\n\"B C\" = \"x\"") ==
        Words{"f.toml:2: A must be a string", "f.toml:3: \"B C\" is no name of a variable"});
  CHECK(messages("env = 1\nannotations = 2") == Words{"f.toml:1: env must be a table, written [env]",
                                                      "f.toml:2: annotations must be a table, written [annotations]"});
  CHECK(messages("\nimage = \"x").at(0).starts_with("f.toml:2: "));
  CHECK(messages("[annotations]\na.b = \"x\"\n[annotations.a]\nc = \"x\"").at(0).starts_with("f.toml:3: "));
  CHECK(messages("[env]\nA = \"x\",\n").at(0).starts_with("f.toml:2: "));
  std::string deep = "annotations.a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  CHECK(messages(deep + " = 1") == Words{"f.toml:1: more than 512 dots in one line"});
}

TEST_CASE("files are put on top of those that they are based on") {
  const Files files;
  files.write("site/base.toml",
              "image = \"debian\"\nworkdir = \"/base\"\nmounts = [\"/a:/a\"]\n[env]\nA = \"1\"\nB = \"1\"\n");
  files.write("user/more.toml",
              "image = \"ubuntu\"\nwritable = false\nmounts = [\"/b:/b\", \"/a:/a\"]\n[env]\nB = \"2\"\n");
  files.write("user/top.toml",
              "base_environment = [\"base\", \"more\"]\nmounts = [\"/c:/c\"]\nentrypoint = false\n[env]\nC = \"3\"\n");
  const Edf edf = files.load("top");
  CHECK(edf.files == Words{files.path("site/base.toml"), files.path("user/more.toml"), files.path("user/top.toml")});
  const ResolvedEnvironment resolved = options_of(edf);
  CHECK(resolved.image == "ubuntu");
  CHECK(resolved.workdir == "/base");
  CHECK_FALSE(resolved.writable);
  CHECK_FALSE(resolved.entrypoint);
  CHECK(mounts_of(resolved) ==
        Words{"/a:/a  (base.toml:3: mounts)", "/b:/b  (more.toml:3: mounts)", "/c:/c  (top.toml:2: mounts)"});
  CHECK(resolved.variables == Words{"A=1", "B=2", "C=3"});
  CHECK(edf.combined.workdir->where == files.path("site/base.toml") + ":2");

  const auto text = resolved.to_text();
  REQUIRE(text);
  CHECK(ResolvedEnvironment::from_text(*text) == resolved);
  CHECK_FALSE(ResolvedEnvironment::from_text("AAAA"));
  CHECK_FALSE(ResolvedEnvironment::from_text("?"));

  files.write("user/plain.toml", "image = \"debian\"");
  CHECK(options_of(files.load("plain")).writable);
  CHECK(options_of(files.load("plain")).entrypoint);
}

TEST_CASE("a circle, and too many levels, are errors that name the files") {
  const Files files;
  files.write("user/a.toml", "base_environment = \"b\"");
  files.write("user/b.toml", "\nbase_environment = \"" + files.path("user/a.toml") + "\"");
  const std::string a = files.path("user/a.toml"), b = files.path("user/b.toml");
  CHECK(files.error("a") ==
        b + ":2: base_environment goes in a circle: " + a + " -> " + b + " -> " + a + " [environment-file]");
  for (int i = 0; i < 12; ++i)
    files.write("user/l" + std::to_string(i) + ".toml",
                i == 11 ? "image = \"x\"" : "base_environment = \"l" + std::to_string(i + 1) + "\"");
  CHECK(files.load("l1").files.size() == 11);
  CHECK(files.error("l0").find("over more than 10 levels") != std::string::npos);
  // Twice each: 2^10 files would be read.
  for (int i = 0; i < 10; ++i)
    files.write("user/w" + std::to_string(i) + ".toml",
                i == 9 ? "image = \"x\""
                       : "base_environment = [\"w" + std::to_string(i + 1) + "\", \"w" + std::to_string(i + 1) + "\"]");
  CHECK(files.error("w0").find("more than 64 files") != std::string::npos);
}

TEST_CASE("references, and paths from where srun is called") {
  const Files files;
  files.write("user/e.toml", R"(image = "./${NAME:-x}.sqsh"
workdir = "${SCRATCH}/run"
mounts = ["$SCRATCH:/scratch", "${EMPTY:-/e}:/e:ro,private", "./data:/data", "/price/$$5:/p", "./d.sqsh:/d:sqsh", "docker://a:1:/e:image,ro"]
devices = ["/dev/fuse", "nvidia.com/gpu=${NO:-all}"]
[env]
PATH = "${PATH}:/opt/bin"
)");
  const ResolvedEnvironment resolved = options_of(files.load("e"));
  CHECK(resolved.image == files.path("work/x.sqsh"));
  CHECK(resolved.workdir == "/scratch/me/run");
  // A dollar sign that is left is one: the node would expand it.
  CHECK(mounts_of(resolved) ==
        Words{"/scratch/me:/scratch  (e.toml:3: mounts)", "/e:/e:ro+private  (e.toml:3: mounts)",
              files.path("work/data") + ":/data  (e.toml:3: mounts)", "/price/\\$5:/p  (e.toml:3: mounts)",
              files.path("work/d.sqsh") + ":/d:sqsh  (e.toml:3: mounts)",
              "docker://a:1:/e:image+ro  (e.toml:3: mounts)", "/dev/fuse:/dev/fuse  (e.toml:4: devices)"});
  CHECK(resolved.devices == Words{"nvidia.com/gpu=all"});
  CHECK(resolved.variables == Words{"PATH=${PATH}:/opt/bin"});

  const std::string file = files.path("user/e.toml");
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"image = \"a\"\nworkdir = \"${NOWHERE}\"", ":2: variable NOWHERE is not set"},
           {"image = \"${A-b}\"", ":1: ${A-b} is no reference to a variable"},
           {"image = \"${A\"", ":1: a \"${\" has no \"}\""},
           {"image = \"A B\"", ":1: "},
           {"mounts = [\"a:b\"]", ":1: invalid mount 'a:b'"},
           {"mounts = [\"/a,b:/b\"]", ":1: mount '/a,b:/b': a comma in a path"},
           {"mounts = [\"/a:/b:RO\"]", ":1: bind /a on /b: unknown flag \"RO\" [mount-syntax]"},
           {"devices = [\"gpu\"]", ":1: \"gpu\" is no name of a device"},
           {"[env]\nA = \"${}\"", ":2: ${} is no reference"}}) {
    INFO(text);
    files.write("user/e.toml", text);
    CHECK(files.error("e").starts_with(file + message));
  }
}

TEST_CASE("a home directory, as in the options of srun") {
  Files files;
  files.places.variables.set("HOME", "/home/me");
  files.write("user/h.toml", "image = \"x\"\nworkdir = \"~/run\"\nmounts = [\"~/data:/data\"]\n");
  const ResolvedEnvironment resolved = options_of(files.load("h"));
  CHECK(resolved.workdir == "/home/me/run");
  ContainerSpec spec;
  REQUIRE(resolved.apply(spec));
  REQUIRE(spec.mounts.size() == 1);
  CHECK(spec.mounts[0].source == "$HOME/data");
  CHECK(spec.mounts[0].origin == files.path("user/h.toml") + ":3: mounts");
}

TEST_CASE("which file a name means") {
  const Files files;
  files.write("user/mine.toml", "image = \"mine\"");
  files.write("site/mine.toml", "image = \"site\"");
  files.write("site/pytorch.toml", "image = \"site\"");
  files.write("work/here.toml", "image = \"here\"");
  CHECK(options_of(files.load("mine")).image == "mine");
  CHECK(options_of(files.load("pytorch")).image == "site");
  CHECK(options_of(files.load("./here.toml")).image == "here");
  CHECK(options_of(files.load("here.toml")).image == "here");
  CHECK(options_of(files.load("${EMPTY}" + files.path("work/here.toml"))).image == "here");
  CHECK(files.error("pytroch") ==
        "no environment \"pytroch\" in " + files.path("user") + ", " + files.path("site") +
            " [environment-file]\nhint: did you mean \"pytorch\"? environments: mine, pytorch");
  CHECK(files.error("./nothing.toml") == "no environment file ./nothing.toml [environment-file]");
  std::filesystem::create_directory(files.path("user/folder.toml"));
  CHECK(files.error("folder") == files.path("user/folder.toml") + " is a directory [environment-file]");
  files.write("user/large.toml", std::string((size_t{1} << 20U) + 1, '#'));
  CHECK(files.error("large") == files.path("user/large.toml") + " is larger than 1.0 MiB [environment-file]");
  files.write("user/based.toml", "\nbase_environment = \"nothing\"");
  CHECK(files.error("based").starts_with(files.path("user/based.toml") + ":2: no environment \"nothing\""));

  const std::vector<ListedEdf> listed = list_edfs(files.places);
  Words names;
  for (const ListedEdf& each : listed) names.push_back(each.name + (each.hidden ? "*" : ""));
  CHECK(names == Words{"based", "folder", "large", "mine", "mine*", "pytorch"});

  Environment home;
  home.set("HOME", "/home/me");
  CHECK(EdfPlaces::of(home, "/", "/site").directories == Words{"/home/me/.edf", "/site"});
  home.set("EDF_PATH", "/a:relative:/b:/a");
  CHECK(EdfPlaces::of(home, "/", "/site").directories == Words{"/a", "/b", "/site"});
}

TEST_CASE("annotations that nobody does are told once for each hook") {
  const Files files;
  files.write("user/a.toml", R"(image = "x"
engine = "podman"
[annotations]
com.hooks.ssh.enabled = "true"
com.hooks.ssh.port = "1"
com.hooks.cxi.enabled = "false"
com.hooks.aws_ofi_nccl.variant = "cuda12"
com.hooks.future.enabled = "true"
org.example.note = "x"
)");
  const std::string file = files.path("user/a.toml");
  const Words warnings = files.load("a").warnings;
  REQUIRE(warnings.size() == 5);
  CHECK(warnings[0].starts_with(file + ":7: annotation com.hooks.aws_ofi_nccl: NCCL's plugin"));
  CHECK(warnings[1] == file + ":8: annotation com.hooks.future: not known here, and ignored");
  CHECK(warnings[2].starts_with(file + ":4: annotation com.hooks.ssh: no SSH server"));
  CHECK(warnings[3] == file + ":9: annotation org.example.note: not known here, and ignored");
  CHECK(warnings[4] == file + ":2: engine is another container engine's, and ignored");
}

TEST_CASE("check finds everything in one file") {
  const Files files;
  files.write("user/bad.toml", "imag = \"x\"\nwritable = 1\n");
  files.write("user/above.toml", "base_environment = \"bad\"\n");
  CHECK(check_edf("bad", files.places).size() == 2);
  CHECK(check_edf("above", files.places).size() == 2);
  CHECK(check_edf("nothing", files.places).size() == 1);
  files.write("user/good.toml", "image = \"x\"\n");
  CHECK(check_edf("good", files.places).empty());
}
