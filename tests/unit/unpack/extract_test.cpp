// Judged by unsquashfs: the same image must become the same tree.
#include "hooks/unpack/extract.hpp"

#include <algorithm>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/unpack/read_image.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/unit/unpack/shell.hpp"

using namespace situla;
using test::shell;

namespace {

std::string output(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  while (const size_t size = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, size);
  CHECK(pclose(pipe) == 0);
  return text;
}

/// A tree with everything that a file system can hold, except devices.
void make_tree(const std::string& root) {
  shell("mkdir -p '" + root + "'/a/b/c '" + root + "'/closed/in '" + root + "/name with blanks' '" + root +
        "/ünïcödé ☃'");
  shell("cd '" + root +
        "' && head -c 10000000 /dev/urandom >big && head -c 131072 /dev/zero >zeros && : >empty && "
        "echo tail >small && head -c 131073 /dev/urandom >block-and-one && seq 200000 >text && "
        "truncate -s 3000000 sparse && echo middle | dd of=sparse bs=1 seek=1500000 conv=notrunc 2>/dev/null && "
        "truncate -s 5000000 hole && ln text a/hard1 && ln text a/b/hard2 && ln -s ../../small a/b/up && ln -s "
        "/etc/passwd absolute && "
        "ln -s nowhere dangling && ln -s loop loop && mkfifo fifo && echo x >a/b/c/$(printf 'n%.0s' $(seq 200)) && "
        "ln -s small symlink && ln -P symlink hard-symlink && echo secret >closed/in/file && "
        "cp small setuid && chmod 4755 setuid && chmod 1777 a/b && chmod 0400 small && "
        "touch -d '1999-12-31 23:59:59' empty a/b && touch -h -d '2001-01-01' absolute");
  shell("setfattr -n user.note -v value '" + root + "/big' 2>/dev/null; setfattr -n user.dir -v '' '" + root +
        "/a' 2>/dev/null; true");
  shell("chmod 0555 '" + root + "/closed/in'; chmod 0000 '" + root + "/closed'");
}

/// Names, kinds, modes, link groups' sizes, times, targets, hashes; without owners and set-id bits.
std::string listing(const std::string& root) {
  shell("chmod 0700 '" + root + "/closed'");
  std::string text = output("cd '" + root +
                            "' && find . -mindepth 1 ! -type d -printf '%P %y %m %n %s %T@ %l\\n' | sed 's/ f 4755 / f "
                            "755 /' | LC_ALL=C sort; "
                            "find . -mindepth 1 -type d ! -name closed -printf '%P %m %T@\\n' | LC_ALL=C sort; find . "
                            "-type f -exec sha256sum {} + | LC_ALL=C sort; "
                            "find . -exec getfattr -h -d -m user. {} + 2>/dev/null | LC_ALL=C sort");
  shell("chmod 0000 '" + root + "/closed'");
  return text;
}

void open_up(const std::string& root) {
  shell("chmod -R u+rwX '" + root + "'");
}

Result<void> extract(const std::string& image, const std::string& target, LogSink* log = nullptr, size_t threads = 0) {
  TRY_ASSIGN(const UniqueFd fd, open_file(image, O_RDONLY));
  TRY_ASSIGN(const UniqueFd directory, open_file(target, O_RDONLY | O_DIRECTORY));
  return extract_image(fd.get(), directory.get(), {.log = log, .keep_set_id = false, .threads = threads});
}

auto threads_here() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

/// The kernel lists a thread for a moment longer than it is waited for.
bool comes_to_threads(std::ptrdiff_t count) {
  for (int i = 0; i < 1000 && threads_here() != count; ++i) usleep(10000);
  return threads_here() == count;
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777U;
}

}  // namespace

TEST_CASE("An extracted image is the tree that unsquashfs makes of it, with every compressor") {
  const test::TempDir dir;
  make_tree(dir / "tree");
  for (const std::string options :
       {"-comp gzip", "-comp zstd -b 1M", "-comp lz4 -b 4096", "-comp lzo", "-comp lzo -Xalgorithm lzo1x_1 -b 1M",
        "-comp xz", "-noI -noD -noF -noX -no-fragments", "-all-root -comp zstd"}) {
    CAPTURE(options);
    const std::string image = dir / "image.sqsh";
    shell("chmod 0700 " + (dir / "tree/closed") + "; mksquashfs " + (dir / "tree") + " " + image +
          " -noappend -quiet -no-progress " + options + " >/dev/null; chmod 0000 " + (dir / "tree/closed"));
    shell("unsquashfs -no-progress -quiet -d " + (dir / "judge") + " " + image + " >/dev/null 2>&1");
    REQUIRE(mkdir((dir / "ours").c_str(), 0700) == 0);
    const auto done = extract(image, dir / "ours");
    CHECK((done ? "" : done.error().text()) == "");
    CHECK(listing(dir / "ours") == listing(dir / "judge"));
    CHECK(mode_of(dir / "ours/closed") == mode_of(dir / "judge/closed"));
    CHECK(mode_of(dir / "ours/setuid") == 0755);
    struct stat status {};
    REQUIRE(stat((dir / "ours/hole").c_str(), &status) == 0);
    CHECK(status.st_size == 5000000);
    CHECK(status.st_blocks < 100);
    for (const char* name : {"ours", "judge"}) {
      open_up(dir / name);
      REQUIRE(remove_tree(dir / name));
    }
  }
  open_up(dir / "tree");
}

TEST_CASE("Devices and sockets are left out with a note, everything else is there") {
  if (geteuid() != 0)
    return;  // only root can make such an image; unprivileged runs see the same code in the hostile suite
  const test::TempDir dir;
  shell("mkdir " + (dir / "tree") + " && cd " + (dir / "tree") +
        " && mknod null c 1 3 && mknod disk b 7 0 && echo x >file");
  shell("mksquashfs " + (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress >/dev/null");
  REQUIRE(mkdir((dir / "ours").c_str(), 0700) == 0);
  test::MemoryLog log;
  REQUIRE(extract(dir / "image", dir / "ours", &log));
  CHECK(std::filesystem::exists(dir / "ours/file"));
  CHECK_FALSE(std::filesystem::exists(dir / "ours/null"));
  CHECK_FALSE(std::filesystem::exists(dir / "ours/disk"));
  CHECK(log.messages.size() == 1);  // once for both
  CHECK(log.count(LogLevel::info, "device nodes are left out, for example ") == 1);
}

TEST_CASE("Set-id bits are kept only when asked for") {
  const test::TempDir dir;
  shell("mkdir " + (dir / "tree") + " && cd " + (dir / "tree") + " && echo x >file && chmod 6755 file");
  shell("mksquashfs " + (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress >/dev/null");
  for (const bool keep : {false, true}) {
    const std::string target = dir / (keep ? "kept" : "dropped");
    REQUIRE(mkdir(target.c_str(), 0700) == 0);
    auto image = open_file(dir / "image", O_RDONLY);
    auto directory = open_file(target, O_RDONLY | O_DIRECTORY);
    REQUIRE(extract_image(image->get(), directory->get(), {.log = nullptr, .keep_set_id = keep}));
    CHECK(mode_of(target + "/file") == (keep ? 06755 : 0755));
  }
}

TEST_CASE("An image says what it is, and shows single files through its links") {
  const test::TempDir dir;
  shell(
      "mkdir -p " + (dir / "tree/etc/rc.d") + " && cd " + (dir / "tree/etc") +
      " && echo '# provenance' >rc.d/rc && ln -s rc.d/rc rc && ln -s /etc/../../etc/rc absolute && ln -s loop loop && "
      "seq 100000 >big && truncate -s 100000 hole && echo end >>hole");
  shell("SOURCE_DATE_EPOCH=1234567890 mksquashfs " + (dir / "tree") + " " + (dir / "image") +
        " -quiet -no-progress -comp zstd -b 256K -all-root >/dev/null");
  auto image = open_file(dir / "image", O_RDONLY);
  REQUIRE(image);
  const auto info = read_image_info(image->get());
  REQUIRE(info);
  CHECK(info->compressor == "zstd");
  CHECK(info->block_size == 262144);
  CHECK(info->inodes == 9);
  CHECK(info->modification_time == 1234567890);
  CHECK(info->bytes_used > 96);
  CHECK(info->bytes_used <= std::filesystem::file_size(dir / "image"));
  CHECK_FALSE(info->names_owners);
  CHECK(*read_image_file(image->get(), "/etc/rc") == "# provenance\n");
  CHECK(*read_image_file(image->get(), "etc/absolute") == "# provenance\n");
  CHECK(*read_image_file(image->get(), "etc/big", 1 << 20) == test::slurp(dir / "tree/etc/big"));
  CHECK(*read_image_file(image->get(), "etc/hole", 1 << 20) == test::slurp(dir / "tree/etc/hole"));
  CHECK(read_image_file(image->get(), "etc/big", 1000).error().kind() == ErrorKind::corrupt);
  CHECK(read_image_file(image->get(), "/etc/none").error().message() ==
        "open /etc/none in the image: No such file or directory");
  CHECK(read_image_file(image->get(), "/etc/rc/x").error().errnum() == ENOTDIR);
  CHECK(read_image_file(image->get(), "/etc/loop").error().errnum() == ELOOP);
  CHECK(read_image_file(image->get(), "/etc").error().kind() == ErrorKind::usage);
}

TEST_CASE("What is no image is said so") {
  const test::TempDir dir;
  const auto info = [](const std::string& path) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY));
    const auto read = read_image_info(fd.get());
    return read ? "good" : read.error().text();
  };
  CHECK(info(dir.write("text", std::string(5000, 'x'))) == "read superblock: not a squashfs file [image-file]");
  CHECK(info(dir.write("empty", "")) == "read superblock: not a squashfs file [image-file]");
  CHECK(info(dir.path()) == "read superblock: Is a directory [image-file]");
  shell("mkdir " + (dir / "tree") + " && head -c 300000 /dev/urandom >" + (dir / "tree/x") + " && mksquashfs " +
        (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress >/dev/null && head -c 200000 " +
        (dir / "image") + " >" + (dir / "short"));
  CHECK(info(dir / "image") == "good");
  CHECK(info(dir / "short").find("read superblock: the image is truncated: 200000 of ") == 0);
  // Superblock offset 20: the compressor.
  std::string bytes = test::slurp(dir / "image");
  bytes[20] = 9;
  CHECK(info(dir.write("unknown", bytes)) ==
        "read superblock: compressed with method 9, which this build cannot read [image-unsupported]");
}

TEST_CASE("A full disk and a target in use are told apart") {
  const test::TempDir dir;
  shell("mkdir " + (dir / "tree") + " && echo x >" + (dir / "tree/file") + " && mksquashfs " + (dir / "tree") + " " +
        (dir / "image") + " -quiet -no-progress >/dev/null");
  dir.write("used/file", "mine");
  const auto refused = extract(dir / "image", dir / "used");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message() == "extract file: the name appears twice, or the target was not empty");
  CHECK(test::slurp(dir / "used/file") == "mine");
}

TEST_CASE("Any number of threads makes the same tree, and none is left") {
  const test::TempDir dir;
  make_tree(dir / "tree");
  shell("cd " + (dir / "tree") +
        " && mkdir many && for i in $(seq 700); do head -c $((i * 37)) big >many/$i; done && "
        "for i in $(seq 100 110); do ln many/$i a/hard-$i; done && head -c 30000000 /dev/urandom >large && chmod 0700 "
        "closed");
  shell("mksquashfs " + (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress -b 64K >/dev/null");
  std::string expected;
  const auto before = threads_here();
  for (const size_t threads : {1U, 2U, 3U, 16U}) {
    CAPTURE(threads);
    REQUIRE(mkdir((dir / "ours").c_str(), 0700) == 0);
    REQUIRE(extract(dir / "image", dir / "ours", nullptr, threads));
    const std::string made = listing(dir / "ours");
    if (expected.empty()) expected = made;
    CHECK(made == expected);
    CHECK(made.find("many/700") != std::string::npos);
    CHECK(comes_to_threads(before));
    open_up(dir / "ours");
    REQUIRE(remove_tree(dir / "ours"));
  }
  open_up(dir / "tree");
}

TEST_CASE("Damaged data end the extraction, whichever thread finds them") {
  const test::TempDir dir;
  shell("mkdir " + (dir / "tree") + " && cd " + (dir / "tree") +
        " && for i in $(seq 400); do head -c 30000 /dev/urandom | base64 >$i; done");
  shell("mksquashfs " + (dir / "tree") + " " + (dir / "image") + " -quiet -no-progress -no-fragments >/dev/null");
  std::string bytes = test::slurp(dir / "image");
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), 200000, '\0');
  dir.write("image", bytes);
  const auto before = threads_here();
  for (const size_t threads : {1U, 4U}) {
    CAPTURE(threads);
    REQUIRE(mkdir((dir / "ours").c_str(), 0700) == 0);
    const auto done = extract(dir / "image", dir / "ours", nullptr, threads);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind() == ErrorKind::corrupt);
    CHECK_THAT(done.error().message(), Catch::StartsWith("extract ") && Catch::Contains("read data block 0: "));
    CHECK(comes_to_threads(before));
    REQUIRE(remove_tree(dir / "ours"));
  }
}
