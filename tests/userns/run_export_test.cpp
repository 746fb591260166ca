// Is an exported image what the container showed? Real overlays in a user namespace, changed at random; unsquashfs
// judges.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/export/export.hpp"
#include "hooks/mount/overlay.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/userns/export_support.hpp"
#include "tests/userns/run_support.hpp"

using namespace situla;
using namespace situla::test;
namespace fs = std::filesystem;

namespace {

/// A layered container by hand: the image, and beside it what the image has, as the lower layer of a real overlay.
struct Container {
  explicit Container(const std::string& base) : base_(base) {
    for (const char* name : {"/source", "/c", "/c/.situla", "/c/.situla/upper", "/c/.situla/work", "/merged"})
      fs::create_directory(base + name);
    named = {"c", base + "/c", NamedContainer::Kind::layered};
  }
  Result<void> make_image(const std::string& options) {
    TRY(shell("mksquashfs " + base_ + "/source " + named.image() + " -noappend -quiet -all-root " + options));
    // What the image has, not what it was made of: unsquashfs gives whole seconds.
    return shell("unsquashfs -quiet -no-progress -d " + base_ + "/lower " + named.image());
  }
  Result<void> mount() {
    NullLog log;
    TRY_ASSIGN(const UniqueFd target, open_file(merged(), O_PATH | O_DIRECTORY));
    return mount_overlay({{base_ + "/lower"}, named.upper(), named.work()}, target.get(), {}, log);
  }
  Result<void> unmount() { return situla::unmount(merged(), false); }
  Result<ExportedImage> save(const std::string& name, LogSink& log, ExportOptions options = {}) {
    TRY_ASSIGN(const ExportSource source, ExportSource::open(named));
    options.path = base_ + "/" + name + ".sqsh";
    NullProgress progress;
    return export_container(source, options, progress, log);
  }
  Result<Listing> extracted(const std::string& name) {
    TRY(shell("unsquashfs -quiet -no-progress -d " + base_ + "/" + name + ".out " + base_ + "/" + name + ".sqsh"));
    return list_tree(base_ + "/" + name + ".out");
  }
  [[nodiscard]] std::string merged() const { return base_ + "/merged"; }

  NamedContainer named;

 private:
  std::string base_;
};

std::string noise(size_t size, std::mt19937& random) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

Result<void> random_container(const std::string& base, unsigned seed, const std::string& image_options) {
  std::mt19937 random(seed);
  Container container(base);
  make_random_tree(base + "/source", random, 120);
  // With it the changes are few, and the image's blocks are taken as a whole.
  if (seed % 2 == 0) put_file(base + "/source/stable", noise(8 << 20U, random));
  // An image has none that nobody may enter: import, and enroot's create, see to that.
  TRY(shell("find " + base + "/source -type d -perm 0000 -exec chmod 700 {} +"));
  TRY(container.make_image(image_options));
  TRY(container.mount());
  // Several lives of one container: what overlay finds in its upper layer is its own work.
  for (int life = 0; life < 2; ++life) {
    change_randomly(container.merged(), random, 40);
    TRY(container.unmount());
    TRY(container.mount());
  }
  const Listing expected = list_for_image(container.merged());
  TRY(container.unmount());
  MemoryLog log;
  TRY(container.save("image", log));
  TRY_ASSIGN(const Listing found, container.extracted("image"));
  const std::string differ = differences(expected, found);
  if (!differ.empty()) return fail(ErrorKind::failure, "seed " + std::to_string(seed) + ":\n" + differ);
  // The same again gives the same bytes.
  ExportOptions options;
  options.all_time = 1234567890;
  TRY(container.save("once", log, options));
  TRY(container.save("twice", log, options));
  return shell("cmp " + base + "/once.sqsh " + base + "/twice.sqsh");
}

}  // namespace

TEST_CASE("an exported container has the files that its overlay showed") {
  struct Kind {
    std::string options;
    unsigned first, seeds;
  };
  // xz takes more time than all others.
  const auto [options, first, some] =
      GENERATE(Kind{"-comp zstd -Xcompression-level 1", 1, 6}, Kind{"-comp gzip -Xcompression-level 1 -b 64K", 100, 6},
               Kind{"-comp lz4 -noI", 200, 6}, Kind{"-comp xz -no-fragments", 300, 2}, Kind{"-comp lzo -noD", 400, 6},
               Kind{"-comp zstd -noD -noF -no-xattrs", 500, 6});
  const char* wanted = std::getenv("SITULA_TEST_SEEDS");
  const auto seeds = wanted != nullptr ? static_cast<unsigned>(std::atoi(wanted)) : some;
  for (unsigned seed = first; seed < first + seeds; ++seed) {
    TemporaryDirectory directory;
    const std::string base = directory / "export";
    fs::create_directory(base);
    give_to_user(directory.path());
    give_to_user(base);
    INFO(options << ", seed " << seed);
    CHECK(in_user_namespace([&, &options = options] { return random_container(base, seed, options); }, true) == "");
  }
}

namespace {

/// A layered container with one large file in its image, in which nothing changed yet.
struct LargeContainer : Container {
  explicit LargeContainer(const std::string& base) : Container(base), random(7) {
    put_file(base + "/source/large", noise(6 << 20U, random));
    put_file(base + "/source/other", noise(3 << 20U, random));
    for (int i = 0; i < 50; ++i) put_file(base + "/source/small/" + std::to_string(i), noise(3000, random));
  }
  std::mt19937 random;
};

uint64_t size_of(const std::string& path) {
  return fs::file_size(path);
}

/// Runs a test with a directory that belongs to the user, as root of a user namespace.
std::string with_directory(const std::function<Result<void>(const std::string&)>& body, bool as_root = true) {
  TemporaryDirectory directory;
  give_to_user(directory.path());
  const std::string base = directory.path();
  const Body run = [&] { return body(base); };
  return as_root ? in_user_namespace(run, true) : as_user(run);
}

}  // namespace

TEST_CASE("what did not change keeps its blocks, at the same places") {
  CHECK(with_directory([](const std::string& base) -> Result<void> {
          LargeContainer container(base);
          TRY(container.make_image("-comp zstd"));
          put_file(container.named.upper() + "/new", "new");
          MemoryLog log;
          TRY_ASSIGN(const ExportedImage image, container.save("image", log));
          EXPECT(image.compressed_bytes == 3);
          EXPECT(image.kept_bytes > 9 << 20U);
          // All but the superblock.
          TRY(shell("cmp --ignore-initial=96 --bytes=" + std::to_string(9 << 20U) + " " + base + "/image.sqsh " +
                    container.named.image()));
          EXPECT(image.image_bytes < size_of(container.named.image()) + 100000);
          EXPECT(size_of(base + "/image.sqsh") == image.image_bytes);
          return {};
        }) == "");
}

TEST_CASE("what was removed does not stay in the file when it is much") {
  CHECK(with_directory([](const std::string& base) -> Result<void> {
          LargeContainer container(base);
          TRY(container.make_image("-comp gzip -Xcompression-level 1"));
          TRY(container.mount());
          EXPECT(fs::remove(container.merged() + "/large"));
          const Listing expected = list_for_image(container.merged());
          TRY(container.unmount());
          MemoryLog log;
          TRY_ASSIGN(const ExportedImage image, container.save("image", log));
          EXPECT(image.image_bytes < 4 << 20U);
          EXPECT(image.compressed_bytes == 0);
          TRY_ASSIGN(const Listing found, container.extracted("image"));
          EXPECT(differences(expected, found).empty());
          return {};
        }) == "");
}

TEST_CASE("the user's squash options decide, if there are any") {
  CHECK(with_directory([](const std::string& base) -> Result<void> {
          LargeContainer container(base);
          TRY(container.make_image("-comp gzip -b 256K"));
          MemoryLog log;
          ExportOptions options;
          TRY(container.save("same", log, options));
          TRY(shell("unsquashfs -s " + base + "/same.sqsh | grep -q 'Compression gzip'"));
          TRY(shell("unsquashfs -s " + base + "/same.sqsh | grep -q 'Block size 262144'"));
          EXPECT(log.count(LogLevel::info, "compressing everything again") == 0);
          options.squash_options = "-comp zstd -b 64K";
          TRY_ASSIGN(const ExportedImage image, container.save("other", log, options));
          TRY(shell("unsquashfs -s " + base + "/other.sqsh | grep -q 'Compression zstd'"));
          TRY(shell("unsquashfs -s " + base + "/other.sqsh | grep -q 'Block size 65536'"));
          EXPECT(log.count(LogLevel::info, "compressing everything again: ENROOT_SQUASH_OPTIONS asks") == 1);
          EXPECT(image.kept_bytes == 0);
          TRY_ASSIGN(const Listing same, container.extracted("same"));
          TRY_ASSIGN(const Listing other, container.extracted("other"));
          EXPECT(differences(same, other).empty());
          return {};
        }) == "");
}

TEST_CASE("a tree is exported without what enroot leaves out") {
  CHECK(with_directory(
            [](const std::string& base) -> Result<void> {
              const std::string tree = base + "/tree";
              for (const char* path : {"/etc/rc", "/dev/null", "/.lock", "/.enroot/bin/x", "/.situla/image", "/file"})
                put_file(tree + path, "content");
              fs::create_directories(tree + "/mnt/point");
              fs::create_directories(tree + "/usr/.lock");
              put_file(tree + "/secret", "nobody reads me", 0000);
              put_file(tree + "/mounted", "", 0000);
              TRY(shell("chmod 0 " + tree + "/mnt/point; chmod 4755 " + tree + "/etc/rc"));
              TRY(shell("mkfifo " + tree + "/fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"" +
                        tree + "/socket\")'"));
              ExportSource source;
              source.name = "tree";
              TRY_ASSIGN(source.directory, open_file(tree, O_RDONLY | O_DIRECTORY));
              ExportOptions options;
              options.path = base + "/tree.sqsh";
              NullProgress progress;
              MemoryLog log;
              // An ordinary user, who may not read all of his own files.
              TRY(become_root_of_own_files());
              TRY(export_container(source, options, progress, log));
              TRY(shell("unsquashfs -quiet -no-progress -d " + base + "/out " + options.path));
              const Listing found = list_tree(base + "/out");
              std::string names;
              for (const auto& [path, line] : found) names += path + " ";
              EXPECT(names == "/ /dev /etc /etc/rc /fifo /file /mnt /secret /usr /usr/.lock ");
              EXPECT(get_file(base + "/out/secret") == "nobody reads me");
              EXPECT(found.at("/etc/rc").starts_with("8 4755 "));
              EXPECT(log.count(LogLevel::info, "sockets are left out, for example /socket") == 1);
              TRY(shell("unsquashfs -lln " + options.path +
                        " | grep -vE '^.{10} 0/0 ' | grep -c squashfs-root | grep -qx 0"));
              return {};
            },
            false) == "");
}

TEST_CASE("an export into an existing file needs force, and leaves the old file when it fails") {
  CHECK(with_directory([](const std::string& base) -> Result<void> {
          LargeContainer container(base);
          TRY(container.make_image("-comp zstd"));
          put_file(base + "/image.sqsh", "old");
          MemoryLog log;
          const auto refused = container.save("image", log);
          EXPECT(!refused && refused.error().message() == "File already exists: " + base + "/image.sqsh");
          ExportOptions options;
          options.replace = true;
          // No room: a limit on the size of files is as good as a full disk.
          const auto full = in_child([&]() -> Result<void> {
            const rlimit limit{2 << 20U, 2 << 20U};
            (void)signal(SIGXFSZ, SIG_IGN);
            if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return fail_errno(errno, "limit");
            TRY(container.save("image", log, options));
            return {};
          });
          EXPECT(full.find("write " + base + "/image.sqsh: File too large") != std::string::npos);
          EXPECT(get_file(base + "/image.sqsh") == "old");
          TRY(container.save("image", log, options));
          EXPECT(size_of(base + "/image.sqsh") > 9 << 20U);
          // The image that the container was made of may be the target.
          put_file(container.named.upper() + "/new", "new");
          TRY(container.save("c/.situla/image", log, options));
          TRY_ASSIGN(const Listing found, container.extracted("c/.situla/image"));
          EXPECT(found.contains("/new") && found.contains("/large"));
          TRY(shell("ls -A " + base + " | grep -c situla- | grep -qx 0"));
          return {};
        }) == "");
}

TEST_CASE("a container may change while it is exported") {
  CHECK(
      with_directory([](const std::string& base) -> Result<void> {
        LargeContainer container(base);
        TRY(container.make_image("-comp zstd"));
        TRY(container.mount());
        for (int round = 0; round < 5; ++round) {
          // It grows, shrinks, removes and replaces until it is ended.
          TRY_ASSIGN(Child writer, fork_child());
          if (!writer) {
            std::mt19937 random(static_cast<unsigned>(round));
            for (;;) {
              change_randomly(container.merged() + "/small", random, 20);
              put_file(container.merged() + "/log", noise(random() % 3000000, random));
              fs::remove(container.merged() + "/log");
            }
          }
          usleep(20000);
          MemoryLog log;
          const std::string name = "live" + std::to_string(round);
          TRY(container.save(name, log));
          writer = Child();
          // It is whole, whatever was in it.
          TRY(shell("unsquashfs -quiet -no-progress -d " + base + "/" + name + ".out " + base + "/" + name + ".sqsh"));
          EXPECT(get_file(base + "/" + name + ".out/large") == get_file(container.merged() + "/large"));
        }
        return container.unmount();
      }) == "");
}

TEST_CASE("an export that is killed leaves nothing") {
  CHECK(with_directory([](const std::string& base) -> Result<void> {
          LargeContainer container(base);
          TRY(container.make_image("-comp zstd"));
          put_file(container.named.upper() + "/new", noise(4 << 20U, container.random));
          fs::create_directory(base + "/target");
          put_file(base + "/target/image.sqsh", "old");
          int killed = 0;
          for (int i = 0; i < 20; ++i) {
            TRY_ASSIGN(Child child, fork_child());
            if (!child) {
              MemoryLog log;
              ExportOptions options;
              options.replace = true;
              _exit(container.save("target/image", log, options) ? 0 : 1);
            }
            usleep(static_cast<useconds_t>(i * 3000));
            TRY(child.signal(SIGKILL));
            TRY_ASSIGN(const ExitStatus status, child.wait());
            killed += status.signal == SIGKILL ? 1 : 0;
            // Between the two calls that put a finished file in the place of another it has a name, until the next
            // export.
            TRY(shell("! ls -A " + base + "/target | grep -v -x -e image.sqsh -e '[.]situla-.*[.]part'"));
            if (status.signal == SIGKILL) continue;
            put_file(base + "/target/image.sqsh", "old");
          }
          EXPECT(killed > 0);
          MemoryLog log;
          ExportOptions options;
          options.replace = true;
          TRY(container.save("target/image", log, options));
          TRY(shell("test \"$(ls -A " + base + "/target)\" = image.sqsh"));
          return {};
        }) == "");
}
