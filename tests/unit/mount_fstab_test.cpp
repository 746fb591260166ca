// Is enroot's fstab dialect (COMPAT.md 6, "fstab dialect") read as it is there?
#include <catch2/catch.hpp>

#include "hooks/mount/fstab.hpp"
#include "hooks/mount/source.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// "pass: description", the origin left out.
std::string read(const std::string& line) {
  const auto entry = parse_fstab_line(line, "test");
  if (!entry) return "error: " + entry.error().message();
  std::string text = describe(entry->step);
  text.resize(text.size() - std::string("  (test)").size());
  return std::to_string(entry->pass) + ": " + text;
}

}  // namespace

TEST_CASE("fields that are missing are guessed") {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"tmpfs /x", "0: mount tmpfs on /x"},
      {"tmpfs /x size=1G", "0: mount tmpfs on /x [size=1G]"},
      {"tmpfs /x x-create=dir,mode=755", "0: mount tmpfs on /x [mode=755, create directory]"},
      {"/src", "0: bind /src on /src [recursive, create]"},
      {"/src bind", "0: bind /src on /src"},
      {"/src rbind,ro", "0: bind /src on /src [recursive, ro]"},
      {"/src /dst", "0: bind /src on /dst [recursive, create]"},
      {"/src /dst bind", "0: bind /src on /dst"},
      {"/src /dst ro", "0: bind /src on /dst [recursive, ro]"},
      {"/src /dst bind,ro,nosuid", "0: bind /src on /dst [ro, nosuid]"},
      {"none /x devpts", "0: mount devpts on /x"},
      {"devpts /x devpts newinstance,ptmxmode=0666", "0: mount devpts on /x [newinstance, ptmxmode=0666]"},
      {"./src /dst", "0: bind ./src on /dst [recursive, create]"},
  };
  for (const auto& [line, expected] : table) {
    INFO(line);
    CHECK(read(line) == expected);
  }
}

TEST_CASE("whole lines, pass numbers, actions") {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"/a /b none x-create=dir,rbind,ro,nosuid,nodev,noexec,rslave 0 -1",
       "-1: bind /a on /b [recursive, ro, nosuid, nodev, noexec, rslave, create directory]"},
      {"/a /b none bind -1", "-1: bind /a on /b"},
      {"/a /b none bind 0 0", "0: bind /a on /b"},
      {"/a /b none bind 0 2", "2: bind /a on /b"},
      {"/a /b bind -1", "-1: bind /a on /b"},
      {"tmpfs /x 0 -1", "-1: mount tmpfs on /x"},
      {"none /x none x-detach", "0: unmount /x"},
      {"/a /b none x-move", "0: move /a to /b"},
      {"none /x none remount,bind,ro", "0: remount /x [ro]"},
      {"none /x none rslave", "0: set propagation of /x [rslave]"},
      {"/a /b none bind,nofail", "0: bind /a on /b [if possible]"},
      {"/a /b none bind,ro,rw", "0: bind /a on /b"},
      {"/a /b none bind,rro,rnosuid,nosymfollow,symfollow", "0: bind /a on /b [ro, nosuid]"},
      {"/a /b none bind,unbindable,ro", "0: bind /a on /b [ro, unbindable]"},
      {"docker://python:3.12 /opt", "0: mount image docker://python:3.12 on /opt [create]"},
      {"docker://python:3.12 /opt image", "0: mount image docker://python:3.12 on /opt"},
      {"docker://host:5000/a /opt image ro,subpath=usr,x-create=auto",
       "0: mount image docker://host:5000/a on /opt [subpath=usr, ro, create]"},
      {"docker://a /opt none nofail", "0: mount image docker://a on /opt [if possible]"},
      {"/d.sqsh /d sqsh subpath=a", "0: mount image /d.sqsh on /d [subpath=a]"},
      {"/with\\040blank /x\\134y none bind", "0: bind /with blank on /x\\y"},
      {"/a\t \t/b   none\tbind", "0: bind /a on /b"},
      {"tmpfs /x tmpfs defaults,size=10%,lazytime,user", "0: mount tmpfs on /x [size=10%, lazytime]"},
  };
  for (const auto& [line, expected] : table) {
    INFO(line);
    CHECK(read(line) == expected);
  }
}

TEST_CASE("rbind wherever it is makes a bind recursive, and only rbind") {
  CHECK(parse_fstab_line("/a /b none bind,x,rbind", "")->step.recursive);
  CHECK_FALSE(parse_fstab_line("/a /b none bind", "")->step.recursive);
}

TEST_CASE("nofail skips with a warning, silent without") {
  CHECK(parse_fstab_line("/a /b none bind", "")->step.on_failure == OnFailure::fail);
  CHECK(parse_fstab_line("/a /b none bind,silent", "")->step.on_failure == OnFailure::fail);
  CHECK(parse_fstab_line("/a /b none bind,nofail", "")->step.on_failure == OnFailure::warn);
  CHECK(parse_fstab_line("/a /b none bind,nofail,silent", "")->step.on_failure == OnFailure::ignore);
  CHECK(parse_fstab_line("/a /b none bind,nofail,silent,loud", "")->step.on_failure == OnFailure::warn);
}

TEST_CASE("words that mean nothing are kept to warn about, but not where they may be a file system's") {
  CHECK(parse_fstab_line("/a /b none bind,readonly,x-systemd.automount", "")->step.ignored ==
        std::vector<std::string>{"readonly"});
  CHECK(parse_fstab_line("tmpfs /b tmpfs huge=always", "")->step.ignored.empty());
}

TEST_CASE("what is no mount") {
  for (const char* line : {"none", "none /x", "none /x none", "/a /b none bind what is this"}) {
    INFO(line);
    CHECK_THAT(read(line), Catch::StartsWith("error: test"));
  }
}

TEST_CASE("a file: comments, blank lines, variables, origins") {
  Environment environment;
  environment.set("HOME", "/home/me");
  environment.set("WHOLE", "/p /q none bind");
  const auto entries = parse_fstab("# comment\n\n  # another\n${HOME} /h\n${WHOLE}\n$HOME/x${UNSET} /y none bind\n",
                                   environment, "site.fstab");
  REQUIRE(entries);
  REQUIRE(entries->size() == 3);
  CHECK(entries->at(0).step.source == "/home/me");
  CHECK(entries->at(0).step.origin == "site.fstab:4");
  CHECK(entries->at(1).step.target == "/q");
  CHECK(entries->at(2).step.source == "$HOME/x");
  const auto wrong = parse_fstab("/a /b\nnone /x\n", environment, "site.fstab");
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().message(), Catch::StartsWith("site.fstab:2: "));
  const auto real = parse_fstab("LABEL=root / auto defaults 0 1\n/dev/sda2 swap 0 2\n", environment, "");
  REQUIRE(real);
  CHECK(real->empty());
}

TEST_CASE("--container-mounts on the node") {
  Environment environment;
  environment.set("USER", "me");
  const auto step_of = [&](const std::string& option) {
    const auto parsed = parse_mount_options(option);
    REQUIRE(parsed);
    return step_from_option(parsed->front(), environment);
  };
  CHECK(step_of("/scratch/$USER")->source == "/scratch/me");
  CHECK(step_of("/scratch/$USER")->target == "/scratch/me");
  CHECK(step_of("tmpfs:/x/${USER}")->target == "/x/me");
  CHECK(step_of("tmpfs:/x")->type == "tmpfs");
  CHECK(step_of("umount:/x")->kind == StepKind::detach);
  const MountOption script{MountOption::Kind::script, "/spool/$USER/script", "/spool/$USER/script", {}};
  CHECK(describe(*step_from_option(script, environment)) ==
        "bind /spool/$USER/script on /spool/$USER/script [ro, nosuid, nodev, private, create file]  (batch script)");
  CHECK(step_of("/a:/b")->create == CreateTarget::automatic);
  CHECK(step_of("/a:/b:ro")->flags.read_only);
  CHECK(step_of("$USER:/b").error().kind() == ErrorKind::usage);
  CHECK(step_of("$USER:/b").error().code() == ErrorCode::mount_syntax);
  CHECK_FALSE(step_of("/a:$UNSET"));
  // What a variable gives is known here only; the rest is refused when it is parsed.
  environment.set("MODE", "RO");
  CHECK(step_of("/a:/b:$MODE").error().text() ==
        "--container-mounts: bind /a on /b: unknown flag \"RO\" [mount-syntax]\nhint: did you mean \"ro\"?");
  CHECK(describe(*step_of("data.sqsh:/b:sqsh")) == "mount image ./data.sqsh on /b [create]  (--container-mounts)");
  CHECK(parse_mount_options("/a:/b:sqhs").error().hint() == "did you mean \"sqsh\"?");
  CHECK(step_of("/a:/b:x-mine+nofail")->on_failure == OnFailure::warn);
  CHECK(step_of("tmpfs:/x:size=1G")->parameters == MountParameters{{"size", "1G"}});
  CHECK(step_of("/a:/b")->origin == "--container-mounts");
}

TEST_CASE("who asks for a mount is named where its source is missing") {
  MountOption option = parse_mount_options("/no/such/source:/x")->front();
  CHECK(check_sources({option}, {}).error().line() ==
        "--container-mounts: source path does not exist: /no/such/source [mount-source]");
  option.origin = "/home/me/.edf/torch.toml:4: mounts";
  CHECK(check_sources({option}, {}).error().line() ==
        "/home/me/.edf/torch.toml:4: mounts: source path does not exist: /no/such/source [mount-source]");
  CHECK(step_from_option(option, {})->origin == "/home/me/.edf/torch.toml:4: mounts");
  option.flags.emplace_back("nofail");
  CHECK(check_sources({option}, {}));
}

TEST_CASE("--mount: what --container-mounts takes, and lines of fstab with colons") {
  const auto shown = [](std::string_view argument) {
    Environment environment;
    environment.set("HOME", "/home/me");
    const auto step = step_from_argument(argument, "--mount", environment);
    return step ? describe(*step) : step.error().message();
  };
  CHECK(shown("/a:/b") == "bind /a on /b [recursive, create]  (--mount)");
  CHECK(shown("./a b:/c:ro+noexec") == "bind ./a b on /c [recursive, ro, noexec, create]  (--mount)");
  CHECK(shown("/a b:/c:none:bind,ro") == "bind /a b on /c [ro]  (--mount)");
  CHECK(shown("/a:/c:none") == "bind /a on /c [recursive]  (--mount)");
  CHECK(shown("tmpfs:/c:tmpfs:x-create=dir,size=1G") == "mount tmpfs on /c [size=1G, create directory]  (--mount)");
  CHECK(shown("./d.sqsh/x:/c:sqsh") == "mount image ./d.sqsh/x on /c [create]  (--mount)");
  CHECK(shown("d.sqsh:/c:sqsh+noexec") == "mount image d.sqsh on /c [noexec, create]  (--mount)");
  CHECK(shown("/d.sqsh:/c:sqsh:x-create=dir") == "mount image /d.sqsh on /c [create directory]  (--mount)");
  CHECK(shown("docker://me@h:5000/a:1:/c:noexec,subpath=b") ==
        "mount image docker://me@h:5000/a:1 on /c [subpath=b, noexec, create]  (--mount)");
  CHECK(shown("docker://$oauthtoken@nvcr.io#a/b:1:~/c:image") ==
        "mount image docker://$oauthtoken@nvcr.io#a/b:1 on /home/me/c [create]  (--mount)");
  CHECK(shown("docker://a:1") == "--mount: invalid mount 'docker://a:1': an image needs a target");
  CHECK(shown("/a:/b:readonly") == "--mount: bind /a on /b: unknown flag \"readonly\"");
  CHECK(shown("/a:/b:none:bind,RO") == "--mount: bind /a on /b: unknown flag \"RO\"");
}

TEST_CASE("an image and what is in it are told apart by what is there") {
  const test::TempDir dir;
  const std::string image = dir.write("data.sqsh", "x");
  const auto parts = [](const std::string& path) {
    const auto found = image_path(path);
    return found ? found->file + " | " + found->inside : found.error().message();
  };
  CHECK(parts(image) == image + " | ");
  CHECK(parts(image + "/") == image + " | ");
  CHECK(parts(image + "/train/0") == image + " | train/0");
  CHECK(parts(dir / "gone.sqsh/train") == "open image " + (dir / "gone.sqsh/train") + ": No such file or directory");
  CHECK(parts(dir.path()) == "mount image " + dir.path() + ": " + dir.path() + " is a directory");
  CHECK(image_path(dir / "gone.sqsh").error().kind() == ErrorKind::not_found);

  Environment environment;
  const auto error = [&](const std::string& option) {
    const auto checked = check_sources(*parse_mount_options(option), environment);
    return checked ? "" : checked.error().message();
  };
  CHECK(error(image + "/train:/data:sqsh") == "");
  CHECK(error(dir / "gone.sqsh:/data:sqsh+nofail") == "");
  CHECK(error(dir / "gone.sqsh:/data:sqsh") ==
        "--container-mounts: source path does not exist: " + (dir / "gone.sqsh"));
  CHECK_THAT(error(dir.path() + ":/data:sqsh"), Catch::EndsWith("is a directory"));
}
