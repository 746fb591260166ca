// The command line as its users see it: words in, streams and exit status out. COMPAT.md section 3.
#include <cstdlib>
#include <sstream>

#include <unistd.h>

#include <catch2/catch.hpp>

#include "hooks/cli/tool.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

/// A user with a home directory of their own.
struct User {
  test::TempDir dir;
  Environment environment;
  std::string program = "situla";

  User() {
    environment.set("HOME", dir.path());
    environment.set("PATH", "/usr/bin:/bin");
    environment.set("ENROOT_SYSCONF_PATH", dir / "etc");
    environment.set("ENROOT_DATA_PATH", dir / "data");
  }

  [[nodiscard]] Outcome run(std::vector<std::string> arguments, const std::string& input = "") const {
    std::istringstream in(input);
    std::ostringstream out;
    std::ostringstream err;
    const int status = cli::run_tool({program, std::move(arguments), environment}, {in, out, err});
    return {status, out.str(), err.str()};
  }

  [[nodiscard]] bool has(const std::string& path) const { return access((dir / path).c_str(), F_OK) == 0; }

  /// Entries of the data directory, hidden ones too.
  [[nodiscard]] size_t data_entries() const {
    const std::filesystem::path data = dir / "data";
    if (!std::filesystem::exists(data)) return 0;
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(data), {}));
  }

  /// A squashfs file that holds /etc/message with this text.
  [[nodiscard]] std::string image(const std::string& name, const std::string& message) const {
    dir.write("tree/etc/message", message);
    const std::string path = dir / name;
    const std::string command =
        "mksquashfs " + (dir / "tree") + " " + path + " -all-root -noappend -quiet -no-progress >/dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
    return path;
  }
};

}  // namespace

TEST_CASE("usage goes to standard output, and asking for it is no error") {
  const User user;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"help"}, {"--help"}, {"-h"}}) {
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 0);
    CHECK(outcome.err.empty());
    for (const char* command : {"import", "digest", "inspect", "load", "create", "start", "list", "remove", "info",
                                "version", "doctor", "inject"})
      CHECK_THAT(outcome.out, Catch::Contains(command));
  }
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"create", "--help"}, {"create", "-h"}, {"help", "create"}}) {
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, Catch::Contains("--name") && Catch::Contains("IMAGE"));
  }
  const Outcome nothing = user.run({});
  CHECK(nothing.status == 1);
  CHECK_THAT(nothing.out, Catch::Contains("Usage: situla"));
}

TEST_CASE("usage shows the name the program was called by") {
  User user;
  user.program = "enroot";
  CHECK_THAT(user.run({"help"}).out, Catch::Contains("Usage: enroot"));
  CHECK_THAT(user.run({"nonsense"}).err, Catch::Contains("hint: enroot help"));
}

TEST_CASE("a wrong word is named, with a hint, and exits 1") {
  struct Case {
    std::vector<std::string> words;
    const char* error;
    const char* hint;
  };
  const User user;
  for (const Case& c : {
           Case{{"frobnicate"}, "[ERROR] unknown command \"frobnicate\"", "hint: situla help"},
           Case{{"\x1b[2J"}, "unknown command \"\\x1b[2J\"", "hint: situla help"},
           Case{{"--frob", "list"}, "unknown option \"--frob\"", "hint: situla help"},
           Case{{"creat"}, "unknown command \"creat\"", "hint: did you mean \"create\"? situla help"},
           Case{{"--version"}, "unknown option \"--version\"", "hint: situla version"},
           Case{{"list", "--frob"}, "list: unknown option --frob [option]\n", "hint: situla list --help"},
           Case{{"list", "-x"}, "list: unknown option -x", "hint: situla list --help"},
           Case{{"remove", "-fx", "c"}, "remove: unknown option -x", "hint: situla remove --help"},
           Case{{"export", "--fores", "c"}, "unknown option --fores", "hint: did you mean \"--force\"? situla export"},
           Case{{"import", "--ouput=x", "y"}, "unknown option --ouput", "hint: did you mean \"--output\"? situla im"},
           Case{{"start", "-e", "A=1", "--moutn", "/a", "c"}, "unknown option --moutn", "did you mean \"--mount\"?"},
           Case{{"list", "extra"}, "extra", "hint: situla list --help"},
           Case{{"create"}, "IMAGE is required [option]\n", "hint: situla create --help"},
           Case{{"create", "-n"}, "-n", "hint: situla create --help"},
           Case{{"remove"}, "NAME is required", "hint: situla remove --help"},
           Case{{"import"}, "URI is required", "hint: situla import --help"},
           Case{{"import", "--arch"}, "--arch", "hint: situla import --help"},
           Case{{"digest"}, "URI is required", "hint: situla digest --help"},
           Case{{"digest", "--arch"}, "--arch", "hint: situla digest --help"},
           Case{{"start"}, "NAME", "hint: situla start --help"},
           Case{{"start", "--frob", "x"}, "--frob", "hint: situla start --help"},
           Case{{"inject"}, "devices come into a container when it starts", "hint: situla inject --dry-run shows"},
           Case{{"inject", "--frob"}, "--frob", "hint: situla inject --help"},
           Case{{"inject", "--dry-run", "a", "b"}, "b", "hint: situla inject --help"},
           Case{{"inject", "--dry-run", "none"}, "No such file or directory", "hint: situla list shows"},
           Case{{"inject", "--dry-run", "--devices", "gpu0"}, "gpu0", "hint: "},
       }) {
    INFO(c.words[0]);
    const Outcome outcome = user.run(c.words);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err, Catch::Contains(c.error) && Catch::Contains(c.hint) && Catch::StartsWith("[ERROR] "));
  }
}

TEST_CASE("help says how a command is called that passes words on") {
  const User user;
  for (const auto& [name, call] : {std::pair<std::string, std::string>{"start", "start [OPTIONS] NAME|IMAGE"},
                                   {"exec", "exec [OPTIONS] PID COMMAND"},
                                   {"batch", "batch [OPTIONS] CONFIG"}}) {
    const Outcome outcome = user.run({name, "--help"});
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, Catch::StartsWith("Run ") && Catch::Contains("\nUsage: situla " + call));
  }
}

TEST_CASE("help is the command's own up to the words that belong to the container") {
  const User user;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"start", "-e", "A=b", "--help"},
                                                {"start", "--mount", "/a:/b", "-h"},
                                                {"exec", "--env=A=b", "--help"},
                                                {"create", "--no-such-option", "--help"}}) {
    INFO(words[0]);
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 0);
    CHECK_THAT(outcome.out, Catch::Contains("Usage: situla " + words[0]));
    CHECK(outcome.err.empty());
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"start", "none", "ls", "--help"},
                                                {"exec", "2147483647", "ls", "--help"},
                                                {"remove", "--", "--help"}}) {
    INFO(words[0]);
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 1);
    CHECK(outcome.out.empty());
  }
}

TEST_CASE("two dashes end the options, and are a value where one is wanted") {
  const User user;
  CHECK_THAT(user.run({"start", "--root", "--", "none", "--", "x"}).err,
             Catch::Contains("No such file or directory: "));
  CHECK_THAT(user.run({"start", "-e", "A=b", "--env=C=d", "--", "none", "-x"}).err,
             Catch::Contains("No such file or directory: "));
  CHECK(user.run({"exec", "-e", "--", "2147483647", "true"}).err ==
        "[ERROR] Process not found: 2147483647 [container-not-found]\n");
}

TEST_CASE("every option of enroot, in every spelling") {
  struct Case {
    const char* command;
    std::vector<const char*> with_value, flags, operands;
  };
  // The operands make it fail once the options are understood.
  const std::vector<Case> cases = {
      {"import", {"-a|--arch|x86_64", "-o|--output|/nonexistent/x.sqsh"}, {}, {"docker://UPPER"}},
      {"load", {"-a|--arch|aarch64", "-n|--name|x"}, {"-f", "--force"}, {"docker://UPPER"}},
      {"digest", {"-a|--arch|ppc64le"}, {}, {"docker://UPPER"}},
      {"create", {"-n|--name|x"}, {"-f", "--force"}, {"/nonexistent.sqsh"}},
      {"start",
       {"-c|--conf|/nonexistent", "-e|--env|A=b", "-m|--mount|/a:/b", "||--rc|/nonexistent"},
       {"-r", "--root", "-w", "--rw", "--pid", "--net", "--ipc", "--uts"},
       {"nonexistent", "true"}},
      {"exec", {"-e|--env|A=b"}, {}, {"2147483647", "true"}},
      {"batch", {}, {}, {"/nonexistent"}},
      {"remove", {}, {"-f", "--force"}, {"nonexistent"}},
  };
  const User user;
  const auto understood = [&](const Case& c, const std::vector<std::string>& options) {
    std::vector<std::string> words = {c.command};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), c.operands.begin(), c.operands.end());
    INFO(c.command << ' ' << options.front());
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, !Catch::Contains("expected") && !Catch::Contains("option") && !Catch::Contains("--help"));
  };
  for (const Case& c : cases) {
    understood(c, {"--"});
    for (const char* flag : c.flags) understood(c, {flag});
    for (const std::string option : c.with_value) {
      const std::string value = option.substr(option.rfind('|') + 1);
      const std::string names = option.substr(0, option.rfind('|'));
      const std::string shorter = names.substr(0, names.find('|')), longer = names.substr(names.rfind('|') + 1);
      understood(c, {longer, value});
      understood(c, {longer + "=" + value});
      if (!shorter.empty()) understood(c, {shorter, value});
    }
  }
}

TEST_CASE("batch says what is wrong with its script") {
  const User user;
  CHECK(user.run({"batch", "/no/such/script"}).err ==
        "[ERROR] No such file or directory: /no/such/script [not-found]\n");
  const std::string none = user.dir.write("none", "#!/usr/bin/env -S enroot batch\n#ENROOT_REMAP_ROOT=y\n");
  CHECK_THAT(user.run({"batch", none}).err, Catch::StartsWith("[ERROR] Missing directive ENROOT_ROOTFS in " + none));
  CHECK_THAT(user.run({"batch"}).err, Catch::Contains("CONFIG is required"));
  CHECK_THAT(user.run({"batch", "-x", none}).err, Catch::Contains("unknown option -x"));
  CHECK_THAT(user.run({"batch", "--help"}).out, Catch::Contains("Usage: situla batch"));
}

TEST_CASE("exec says what is wrong with its words") {
  const User user;
  CHECK(user.run({"exec", "2147483647", "true"}).err ==
        "[ERROR] Process not found: 2147483647 [container-not-found]\n");
  CHECK_THAT(user.run({"exec", std::to_string(getpid()), "true"}).err,
             Catch::Contains("[ERROR] process " + std::to_string(getpid()) + " is not in a container"));
  for (const char* pid : {"0", "1x", "abc", "99999999999999999999", "2147483648"}) {
    INFO(pid);
    const Outcome outcome = user.run({"exec", "--", pid, "true"});
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, Catch::StartsWith("[ERROR] ") && Catch::Contains(pid) && !Catch::Contains("true"));
  }
  CHECK_THAT(user.run({"exec", "1"}).err, Catch::Contains("PID and COMMAND are required"));
  CHECK_THAT(user.run({"exec", "--frob", "1", "true"}).err, Catch::Contains("unknown option --frob"));
}

TEST_CASE("list --fancy has one header line, and a line for every container") {
  const User user;
  // Columns are as wide as what else runs on this machine, and there is one more when a step does.
  const std::string header = "NAME +PID +COMM +STATE +STARTED +TIME +MNTNS +USERNS +COMMAND( +IMAGE)?";
  for (const char* option : {"-f", "--fancy"}) {
    const std::string out = user.run({"list", option}).out;
    CHECK_THAT(out.substr(0, out.find('\n')), Catch::Matches(header));
  }
  std::filesystem::create_directories(user.dir / "data/a-longer-name");
  std::filesystem::create_directories(user.dir / "data/b");
  std::filesystem::create_directories(user.dir / "data/.hidden");
  const Outcome outcome = user.run({"list", "-f"});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, Catch::StartsWith("NAME" + std::string(11, ' ')));
  CHECK_THAT(outcome.out,
             Catch::Contains("\na-longer-name\n") && Catch::Contains("\nb\n") && !Catch::Contains("hidden"));
}

TEST_CASE("version") {
  User user;
  CHECK_THAT(user.run({"version"}).out, Catch::StartsWith("situla "));
  user.program = "enroot";
  CHECK(user.run({"version"}).out == "4.1.2\n");  // scripts compare it
}

TEST_CASE("info shows what is in effect, in a form that a shell can read back") {
  User user;
  user.dir.write("etc/enroot.conf", "ENROOT_SQUASH_OPTIONS -comp lz4 -b 256K\nENROOT_MOUNT_HOME y\n");
  user.environment.set("ENROOT_MOUNT_HOME", "n");
  const Outcome outcome = user.run({"info"});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, Catch::Contains("\nENROOT_SQUASH_OPTIONS='-comp lz4 -b 256K'\n") &&
                              Catch::Contains("\nENROOT_MOUNT_HOME=n\n") &&
                              Catch::Contains("\nENROOT_LOGIN_SHELL=yes\n") &&
                              Catch::Contains("\nENROOT_DATA_PATH=" + (user.dir / "data") + "\n"));
}

TEST_CASE("info --json") {
  User user;
  user.dir.write("etc/enroot.conf", "ENROOT_SQUASH_OPTIONS -comp lz4 \"a\\\"b\"\n");
  const Outcome outcome = user.run({"info", "--json"});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, Catch::StartsWith("{\n  \"version\": \"") &&
                              Catch::Contains("\"enrootVersion\": \"4.1.2\"") &&
                              Catch::Contains("\"ENROOT_SQUASH_OPTIONS\": \"-comp lz4 a\\\"b\"") &&
                              Catch::Contains("\"ENROOT_LOGIN_SHELL\": \"yes\""));
  user.environment.set("ENROOT_TEMP_PATH", "/tmp/\xff");
  CHECK_THAT(user.run({"info", "--json"}).out, Catch::Contains("\"ENROOT_TEMP_PATH\": \"/tmp/"));
}

TEST_CASE("a configuration that cannot be read in part warns and goes on") {
  User user;
  user.dir.write("etc/enroot.conf", "NONSENSE x\n");
  const Outcome outcome = user.run({"list"});
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.err,
             Catch::StartsWith("[WARN] ") && Catch::Contains("enroot.conf:1: ignoring unknown key \"NONSENSE\""));
}

TEST_CASE("list prints one name per line, sorted, and nothing for nobody") {
  const User user;
  CHECK(user.run({"list"}).out.empty());
  CHECK(user.run({"list"}).status == 0);
  for (const char* name : {"data/ubuntu/x", "data/pyxis_7_a/x", "data/.situla-create-1/x"}) user.dir.write(name, "");
  user.dir.write("data/file", "");
  CHECK(user.run({"list"}).out == "pyxis_7_a\nubuntu\n");
}

TEST_CASE("remove asks first") {
  User user;
  user.dir.write("data/a/etc/x", "");
  const Outcome no = user.run({"remove", "a"}, "n\n");
  CHECK(no.status == 0);
  CHECK(no.err == "Do you really want to delete " + (user.dir / "data/a") + "? [y/N] ");
  CHECK(user.has("data/a"));
  const Outcome unasked = user.run({"remove", "a"}, "");
  CHECK(unasked.status == 1);
  CHECK_THAT(unasked.err, Catch::Contains("remove a: nobody answers [option]\nhint: --force does not ask"));
  CHECK(user.has("data/a"));
  CHECK(user.run({"remove", "a"}, "y\n").status == 0);
  CHECK_FALSE(user.has("data/a"));
  user.dir.write("data/b/etc/x", "");
  user.environment.set("ENROOT_FORCE_OVERRIDE", "yes");
  CHECK(user.run({"remove", "b"}).status == 0);
  CHECK_FALSE(user.has("data/b"));
}

TEST_CASE("remove goes on behind a name that there is not, and says so at the end") {
  const User user;
  for (const char* name : {"data/a/x", "data/b/x", "data/c/x"}) user.dir.write(name, "");
  const Outcome outcome = user.run({"remove", "-f", "none", "a", "nil", "b"});
  CHECK(outcome.status == 1);
  CHECK_THAT(outcome.err, Catch::Contains("data/none") && Catch::Contains("data/nil"));
  CHECK(user.run({"list"}).out == "c\n");
  // docker's word for it.
  CHECK(user.run({"rm", "-f", "c"}).status == 0);
  CHECK(user.run({"ls"}).out.empty());
}

TEST_CASE("list --long and --json say what containers are") {
  const User user;
  user.dir.write("data/by-hand/x", std::string(100'000, 'x'));
  user.dir.write("data/made/.situla-id", "0123456789abcdef0123456789abcdef\nregistry.test/debian:12");
  const std::string table = user.run({"list", "-l"}).out;
  CHECK_THAT(table, Catch::StartsWith("NAME") && Catch::Contains("SIZE") && Catch::Contains("MADE"));
  CHECK_THAT(table, Catch::Matches("(.|\n)*\nby-hand +[0-9.]+ KiB +- +- +-\n(.|\n)*"));
  CHECK_THAT(table, Catch::Matches("(.|\n)*\nmade +[0-9.]+ [KM]?i?B +20[0-9-]+ [0-9:]+ +- +registry.test/debian:12\n"));
  const std::string json = user.run({"list", "--json"}).out;
  CHECK_THAT(json, Catch::Contains("\"name\": \"made\"") && Catch::Contains("\"image\": \"registry.test/debian:12\"") &&
                       Catch::Contains("\"image\": null") && Catch::Contains("\"kind\": \"tree\""));
  CHECK(user.run({"list", "-l", "--json"}).status == 1);
  CHECK_THAT(user.run({"ps"}).out, Catch::StartsWith("NAME") && Catch::Contains("COMMAND"));
  CHECK_THAT(user.run({"inspect", "made"}).out,
             Catch::StartsWith("Container:   made\n") && Catch::Contains("\nImage:       registry.test/debian:12\n"));
  CHECK_THAT(user.run({"inspect", "--json", "made"}).out, Catch::Contains("\"image\": \"registry.test/debian:12\""));
}

TEST_CASE("remove -f takes several names and makes directories accessible first") {
  const User user;
  user.dir.write("data/a/closed/x", "");
  user.dir.write("data/b/x", "");
  std::filesystem::permissions(user.dir / "data/a/closed", std::filesystem::perms::none);
  const Outcome outcome = user.run({"remove", "-f", "a", "b"});
  CHECK(outcome.err.empty());
  CHECK(outcome.status == 0);
  CHECK(user.data_entries() == 0);
}

TEST_CASE("remove touches nothing but containers") {
  const User user;
  user.dir.write("precious/x", "");
  user.dir.write("data/a/x", "");
  const Outcome missing = user.run({"remove", "--force", "b"});
  CHECK(missing.status == 1);
  CHECK(missing.err == "[ERROR] No such file or directory: " + (user.dir / "data/b") +
                           " [container-not-found]\nhint: situla list shows the containers there are\n");
  for (const char* name : {"../precious", ".", "..", "", "a/..", "/", ".hidden"}) {
    INFO(name);
    const Outcome outcome = user.run({"remove", "-f", name});
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, Catch::Contains("[ERROR] Invalid argument: "));
  }
  std::filesystem::create_directory_symlink(user.dir / "precious", user.dir / "data/link");
  CHECK(user.run({"remove", "-f", "link"}).status == 1);
  CHECK(user.has("precious/x"));
  CHECK(user.has("data/a/x"));
}

TEST_CASE("a mistyped container or file: the one that was meant") {
  const User user;
  user.dir.write("data/pytorch/x", "");
  user.dir.write("data/other/x", "");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"start", "pytroch", "true"},
                                                {"remove", "-f", "pytroch"},
                                                {"export", "pytroch"},
                                                {"inject", "--dry-run", "pytroch"}}) {
    INFO(words[0]);
    const Outcome outcome = user.run(words);
    CHECK(outcome.status == 1);
    CHECK(outcome.err == "[ERROR] No such file or directory: " + (user.dir / "data/pytroch") +
                             " [container-not-found]\nhint: did you mean pytorch? situla list shows the containers "
                             "there are\n");
  }
  user.dir.write("debian+12.sqsh", "x");
  const std::string meant = "hint: did you mean " + (user.dir / "debian+12.sqsh") + "?\n";
  for (const char* typed : {"debain+12.sqsh", "debian+12"}) {
    const std::string path = user.dir / typed;
    for (const char* command : {"create", "start", "inspect", "bundle"}) {
      INFO(command << " " << typed);
      CHECK(user.run({command, path}).err ==
            "[ERROR] No such file or directory: " + path + " [image-not-found]\n" + meant);
    }
  }
  CHECK(user.has("data/pytorch/x"));
}

TEST_CASE("create --extract makes a tree under the file's name, without .sqsh") {
  const User user;
  const std::string image = user.image("debian+12.sqsh", "hello");
  const Outcome outcome = user.run({"create", "--extract", image});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK(test::slurp(user.dir / "data/debian+12/etc/message") == "hello");
  CHECK(user.run({"list"}).out == "debian+12\n");
  CHECK(user.data_entries() == 1);
}

TEST_CASE("create -n names the container, in every spelling") {
  const User user;
  const std::string image = user.image("i.sqsh", "hello");
  CHECK(user.run({"create", "-n", "a", image}).status == 0);
  CHECK(user.run({"create", "--name", "b", image}).status == 0);
  CHECK(user.run({"create", "--name=c", image}).status == 0);
  CHECK(user.run({"create", image, "-n", "d"}).status == 0);
  CHECK(user.run({"list"}).out == "a\nb\nc\nd\n");
}

TEST_CASE("create does not touch an existing container unless it is told to") {
  User user;
  const std::string image = user.image("i.sqsh", "new");
  user.environment.set("SITULA_CREATE", "tree");
  user.dir.write("data/i/etc/message", "old");
  user.dir.write("data/i/etc/other", "old");
  const Outcome refused = user.run({"create", image});
  CHECK(refused.status == 1);
  CHECK_THAT(refused.err,
             Catch::StartsWith("[ERROR] File already exists: " + (user.dir / "data/i") + " [container-exists]\n"));
  CHECK(test::slurp(user.dir / "data/i/etc/message") == "old");

  CHECK(user.run({"create", "-f", image}).status == 0);
  CHECK(test::slurp(user.dir / "data/i/etc/message") == "new");
  CHECK_FALSE(user.has("data/i/etc/other"));
  CHECK(user.data_entries() == 1);

  user.environment.set("ENROOT_FORCE_OVERRIDE", "y");
  CHECK(user.run({"create", image}).status == 0);
}

TEST_CASE("a create that fails leaves nothing") {
  const User user;
  const std::string missing = user.dir / "missing.sqsh";
  CHECK(user.run({"create", missing}).err == "[ERROR] No such file or directory: " + missing + " [image-not-found]\n");

  const Outcome garbage = user.run({"create", user.dir.write("garbage.sqsh", std::string(8192, 'x'))});
  CHECK(garbage.status == 1);
  CHECK_THAT(garbage.err, Catch::Contains("[ERROR] create a container of " + (user.dir / "garbage.sqsh") +
                                          ": read superblock: not a squashfs file"));
  User odd;
  odd.environment.set("SITULA_CREATE", "nonsense");
  CHECK_THAT(odd.run({"create", odd.image("i.sqsh", "x")}).err,
             Catch::Contains("SITULA_CREATE=nonsense: not a kind of container [enroot-config]\n") &&
                 Catch::Contains("hint: tree or layered"));
  CHECK(odd.data_entries() == 0);

  const std::string image = user.image("i.sqsh", std::string(100000, 'a'));
  std::filesystem::resize_file(image, 200);
  CHECK(user.run({"create", image}).status == 1);
  CHECK(user.run({"create", "-n", "../up", image}).status == 1);
  CHECK(user.data_entries() == 0);
  CHECK(user.run({"list"}).out.empty());
}

TEST_CASE("import says what is wrong before it talks to anybody") {
  const User user;
  const Outcome path = user.run({"import", "./image.sqsh"});
  CHECK(path.status == 1);
  CHECK_THAT(path.err, Catch::Contains("not the name of an image") && Catch::Contains("hint: "));
  CHECK(user.run({"import", "docker://UPPER CASE"}).status == 1);
  const std::string existing = user.dir.write("have.sqsh", "");
  const Outcome exists = user.run({"import", "-o", existing, "docker://registry.invalid#x"});
  CHECK(exists.status == 1);
  CHECK_THAT(exists.err, Catch::Contains("File already exists: " + existing));
}

TEST_CASE("digest says what is wrong before it talks to anybody") {
  const User user;
  const Outcome path = user.run({"digest", "./image.sqsh"});
  CHECK(path.status == 1);
  CHECK(path.out.empty());
  CHECK_THAT(path.err, Catch::Contains("digest ./image.sqsh: not the name of an image") &&
                           Catch::Contains("hint: for a squashfs file: situla inspect FILE"));
  const Outcome architecture = user.run({"digest", "-a", "vax", "docker://registry.invalid#x"});
  CHECK(architecture.status == 1);
  CHECK_THAT(architecture.err, Catch::Contains("unknown architecture 'vax'"));
  CHECK(user.run({"digest", "docker://UPPER CASE"}).status == 1);
}

TEST_CASE("inspect shows what a squashfs file is and where it is from") {
  const User user;
  user.dir.write("tree/etc/rc",
                 "# enroot-provenance: docker://registry.test/x:1\n# title A \x1b[2Jtitle\n\n# not a label\ncd /\n");
  user.dir.write("tree/etc/environment", "PATH=/bin\n\nA=1\n");
  user.dir.write("tree/etc/fstab", "# nothing\n${ENROOT_ROOTFS}/data /data none x-create=dir,bind\n");
  const std::string image = user.image("i.sqsh", "hello");
  const Outcome outcome = user.run({"inspect", image});
  INFO(outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out,
             Catch::StartsWith("File:        " + image + "\nCompressor:  gzip\nBlock size:  128.0 KiB\n") &&
                 Catch::Contains("\nProvenance:  docker://registry.test/x:1\n") &&
                 Catch::Contains("\nLabels:      title A \\x1b[2Jtitle\n") &&
                 Catch::Contains("\nEnv:         PATH=/bin\n             A=1\n") &&
                 Catch::Contains("\nMounts:      ${ENROOT_ROOTFS}/data /data none"));
  CHECK_THAT(outcome.out, !Catch::Contains("not a label") && !Catch::Contains("\x1b"));
  const Outcome json = user.run({"inspect", "--json", image});
  CHECK(json.status == 0);
  CHECK_THAT(json.out, Catch::StartsWith("{\n") && Catch::Contains("\"source\": \"docker://registry.test/x:1\"") &&
                           Catch::Contains("\"title A \\u001b[2Jtitle\"") && Catch::Contains("\"blockSize\": 131072"));
}

TEST_CASE("inspect says so when a file does not tell where it is from") {
  const User user;
  const std::string image = user.image("i.sqsh", "hello");
  CHECK_THAT(user.run({"inspect", image}).out, Catch::Contains("\nProvenance:  none: "));
  CHECK_THAT(user.run({"inspect", "--json", image}).out, Catch::Contains("\"source\": null"));
}

TEST_CASE("inspect refuses what it cannot show") {
  const User user;
  const std::string missing = user.dir / "missing.sqsh";
  const Outcome none = user.run({"inspect", missing});
  CHECK(none.status == 1);
  CHECK(none.err == "[ERROR] No such file or directory: " + missing + " [image-not-found]\n");
  const std::string garbage = user.dir.write("garbage.sqsh", std::string(8192, 'x'));
  const Outcome bad = user.run({"inspect", garbage});
  CHECK(bad.status == 1);
  CHECK(bad.out.empty());
  CHECK_THAT(bad.err, Catch::Contains("[ERROR] inspect " + garbage + ": ") && Catch::Contains("not a squashfs file"));
  CHECK_THAT(user.run({"inspect", "--raw", garbage}).err,
             Catch::Contains("--raw and --arch are about images in regist"));
  CHECK_THAT(user.run({"inspect", "--raw", "--json", "x"}).err, Catch::Contains("exclude each other"));
  CHECK(user.run({"inspect", user.dir.path()}).status == 1);
}
