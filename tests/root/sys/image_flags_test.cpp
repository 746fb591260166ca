// DESIGN.md 3 step 4: an image that root attached before the user namespace existed keeps ro, nosuid and nodev whatever
// the user tries. The same attempts succeed on an image that the user attached, so a pass here means something.
#include <cstdlib>
#include <set>
#include <thread>

#include <fcntl.h>
#include <linux/loop.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/mount/loop_device.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/overlay.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

constexpr MountFlags kImageFlags{.read_only = true, .no_suid = true, .no_dev = true};

bool have_loop_devices() {
  return access("/dev/loop-control", R_OK | W_OK) == 0;
}

/// An image with a device node and a set-id program, as no importer would write it.
std::string make_image(const test::TempDir& dir) {
  const std::string tree = dir / "tree";
  std::filesystem::create_directories(tree);
  dir.write("tree/text", "hello");
  REQUIRE(chmod((tree + "/text").c_str(), 0600) == 0);
  REQUIRE(mknod((tree + "/node").c_str(), S_IFCHR | 0666, makedev(1, 5)) == 0);  // /dev/zero
  REQUIRE(chmod((tree + "/node").c_str(), 0666) == 0);
  const std::string image = dir / "image.sqsh";
  REQUIRE(std::system(("mksquashfs " + tree + " " + image + " -quiet -no-progress -all-root >/dev/null").c_str()) == 0);
  return image;
}

bool is_attached(const std::string& device) {
  return access(("/sys/block/" + device.substr(5) + "/loop/backing_file").c_str(), F_OK) == 0;
}

/// Whether the device no longer has this image; another program of this machine may get its number at once.
bool gone_soon(const std::string& device, const std::string& image) {
  const auto has_image = [&] {
    const auto file = read_file("/sys/block/" + device.substr(5) + "/loop/backing_file");
    return file && file->starts_with(image);
  };
  for (int i = 0; i < 1200 && has_image(); ++i) usleep(50000);
  return !has_image();
}

Result<DetachedMount> image_mount(const std::string& path) {
  TRY_ASSIGN(const UniqueFd image, open_file(path, O_RDONLY));
  TRY_ASSIGN(const LoopDevice device, LoopDevice::attach(image.get(), "situla-test"));
  return new_mount("squashfs", device.path(), {}, kImageFlags);
}

/// The image as the user sees it: a clone of the node-wide mount, its root's files the user's.
Result<DetachedMount> user_mount(const std::string& path) {
  TRY_ASSIGN(const DetachedMount node_wide, image_mount(path));
  TRY_ASSIGN(DetachedMount clone, clone_tree(node_wide.fd(), false));
  TRY_ASSIGN(const UniqueFd mapping, make_mapping_namespace(test::kTestUid, test::kTestGid));
  TRY(clone.map_ids(mapping.get()));
  return clone;
}

Result<void> become_user() {
  TRY(become({test::kTestUid, test::kTestGid, {}}));
  (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  return {};
}

Result<void> enter_namespaces() {
  TRY(unshare_namespaces(kUserNs | kMountNs));
  return write_own_id_maps(0, test::kTestUid, 0, test::kTestGid);
}

bool can_read_device(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 1;
  return fd && read(fd.get(), &byte, 1) == 1;
}

bool clear_attributes(int fd, const char* path, unsigned flags) {
  kernel::MountAttributes change{};
  change.clear = kernel::kMountReadOnly | kernel::kMountNoSuid | kernel::kMountNoDev;
  return kernel::mount_setattr(fd, path, flags, &change, sizeof change) == 0;
}

struct Attempt {
  const char* name;
  bool (*gains)(const std::string& mounted, const std::string& elsewhere);
};

const Attempt kAttempts[] = {
    {"remount without nodev, nosuid",
     [](const std::string& mounted, const std::string&) {
       return mount(nullptr, mounted.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
     }},
    {"remount read-write",
     [](const std::string& mounted, const std::string&) {
       return mount(nullptr, mounted.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_NODEV | MS_NOSUID, nullptr) == 0;
     }},
    {"mount_setattr",
     [](const std::string& mounted, const std::string&) { return clear_attributes(AT_FDCWD, mounted.c_str(), 0); }},
    {"mount_setattr of one flag, recursively",
     [](const std::string& mounted, const std::string&) {
       kernel::MountAttributes change{};
       change.clear = kernel::kMountNoDev;
       return kernel::mount_setattr(AT_FDCWD, mounted.c_str(), kernel::kAtRecursive, &change, sizeof change) == 0;
     }},
    {"bind and remount",
     [](const std::string& mounted, const std::string& elsewhere) {
       return mount(mounted.c_str(), elsewhere.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
              mount(nullptr, elsewhere.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr) == 0;
     }},
    {"bind and mount_setattr",
     [](const std::string& mounted, const std::string& elsewhere) {
       return mount(mounted.c_str(), elsewhere.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
              clear_attributes(AT_FDCWD, elsewhere.c_str(), 0);
     }},
    {"clone and clear",
     [](const std::string& mounted, const std::string&) {
       const UniqueFd tree(kernel::open_tree(AT_FDCWD, mounted.c_str(), kernel::kOpenTreeClone));
       return tree && clear_attributes(tree.get(), "", AT_EMPTY_PATH);
     }},
    {"unmount", [](const std::string& mounted, const std::string&) { return umount2(mounted.c_str(), 0) == 0; }},
    {"detach", [](const std::string& mounted, const std::string&) { return umount2(mounted.c_str(), 2) == 0; }},
    {"move away",
     [](const std::string& mounted, const std::string& elsewhere) {
       return kernel::move_mount(AT_FDCWD, mounted.c_str(), AT_FDCWD, elsewhere.c_str(), 0) == 0;
     }},
    {"clear, then read a planted device",
     [](const std::string& mounted, const std::string&) {
       (void)mount(nullptr, mounted.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr);
       (void)clear_attributes(AT_FDCWD, mounted.c_str(), 0);
       return can_read_device(mounted + "/node");
     }},
};

/// Names of the attempts that gained something. Each in a process and a mount namespace of its own, as a user would try
/// again.
Result<std::string> successes(const std::string& mounted, const std::string& elsewhere) {
  std::string names;
  for (const Attempt& attempt : kAttempts) {
    TRY_ASSIGN(Child child, fork_child());
    if (!child) {
      if (!unshare_namespaces(kMountNs)) _exit(2);
      _exit(attempt.gains(mounted, elsewhere) ? 1 : 0);
    }
    TRY_ASSIGN(const ExitStatus status, child.wait());
    if (status.signal != 0 || status.code == 2)
      return fail(ErrorKind::failure, std::string("attempt could not be made: ") + attempt.name);
    if (status.code == 1) names += std::string(names.empty() ? "" : "; ") + attempt.name;
  }
  return names;
}

std::string all_attempts() {
  std::string names;
  for (const Attempt& attempt : kAttempts) names += std::string(names.empty() ? "" : "; ") + attempt.name;
  return names;
}

/// A private mount namespace with a tmpfs at `place` that holds the directories of a container.
Result<void> make_stage(const std::string& place) {
  TRY(unshare_namespaces(kMountNs));
  TRY(set_propagation("/", Propagation::private_mount, true));
  TRY_ASSIGN(const UniqueFd target, open_file(place, O_PATH | O_DIRECTORY));
  TRY(mount_new_at(target.get(), "tmpfs", "tmpfs", {{"mode", "0755"}}, {.no_suid = true, .no_dev = true}, place));
  for (const char* name : {"/lower", "/upper", "/work", "/root", "/elsewhere"}) {
    TRY(make_directories(place + name, 0755));
    test::give_to_user(place + name);
  }
  return {};
}

}  // namespace

TEST_CASE("A loop device is read-only, and freed with its last user") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string path = make_image(dir);
  std::string device_path;
  {
    auto image = open_file(path, O_RDONLY);
    REQUIRE(image);
    const std::string label = "situla-test-" + std::to_string(getpid());
    auto device = LoopDevice::attach(image->get(), label);
    REQUIRE(device);
    CHECK(LoopDevice::count(label) == 1);
    device_path = device->path();
    CHECK(is_attached(device_path));
    loop_info64 info{};
    REQUIRE(ioctl(device->fd(), LOOP_GET_STATUS64, &info) == 0);
    CHECK((info.lo_flags & LO_FLAGS_READ_ONLY) != 0);
    CHECK((info.lo_flags & LO_FLAGS_AUTOCLEAR) != 0);
    auto mount = new_mount("squashfs", device_path, {}, kImageFlags);
    REQUIRE(mount);
    device = tl::unexpected<Error>(Error(ErrorKind::failure, "closed"));
    CHECK(is_attached(device_path));  // the mount holds it
    CHECK(faccessat(mount->fd(), "text", F_OK, 0) == 0);
  }
  CHECK(gone_soon(device_path, path));
}

TEST_CASE("Several at once get different devices") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string path = make_image(dir);
  std::vector<Result<LoopDevice>> devices;
  for (int i = 0; i < 6; ++i) devices.emplace_back(fail(ErrorKind::failure, "not run"));
  std::vector<std::thread> threads;
  for (auto& slot : devices)
    threads.emplace_back([&slot, &path] {
      const UniqueFd image(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      slot = LoopDevice::attach(image.get(), "situla-test");
    });
  for (auto& thread : threads) thread.join();
  std::set<std::string> names;
  for (const auto& device : devices) {
    REQUIRE(device);
    names.insert(device->path());
  }
  CHECK(names.size() == 6);
  devices.clear();
  for (const std::string& name : names) CHECK(gone_soon(name, path));
}

TEST_CASE("A file that is no squashfs is refused, and its loop device freed") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string garbage = dir.write("garbage", std::string(1 << 20, 'x'));
  const auto mount = image_mount(garbage);
  REQUIRE_FALSE(mount);
  CHECK(mount.error().message().find("mount squashfs from /dev/loop") == 0);
  const std::string message = mount.error().message();
  const size_t at = std::string("mount squashfs from ").size();
  CHECK(gone_soon(message.substr(at, message.find_first_of(": (", at) - at), garbage));
}

TEST_CASE("An id-mapped image belongs to the user, who makes it writable in a namespace of its own") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string path = make_image(dir);
  REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
  const test::TempDir stage;
  REQUIRE(chmod(stage.path().c_str(), 0755) == 0);
  const std::string place = stage.path();
  const std::string answer = test::in_child([&]() -> Result<void> {
    TRY(make_stage(place));
    TRY_ASSIGN(const DetachedMount mount, user_mount(path));
    TRY_ASSIGN(const UniqueFd target, open_file(place + "/lower", O_PATH | O_DIRECTORY));
    TRY(mount.attach(target.get()));
    TRY(become_user());
    struct stat status {};
    EXPECT(stat((place + "/lower/text").c_str(), &status) == 0);
    EXPECT(status.st_uid == test::kTestUid && status.st_gid == test::kTestGid);
    TRY(enter_namespaces());
    NullLog log;
    TRY_ASSIGN(const UniqueFd root, open_file(place + "/root", O_PATH | O_DIRECTORY));
    TRY(mount_overlay({{place + "/lower"}, place + "/upper", place + "/work", true}, root.get(),
                      {.no_suid = true, .no_dev = true}, log));
    TRY_ASSIGN(const UniqueFd text, open_file(place + "/root/text", O_RDWR | O_APPEND));
    TRY(write_all(text.get(), " world"));
    TRY_ASSIGN(const std::string content, read_file(place + "/root/text"));
    EXPECT(content == "hello world");
    EXPECT(stat((place + "/root/text").c_str(), &status) == 0 && status.st_uid == 0);
    EXPECT(!can_read_device(place + "/root/node"));
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("The user cannot undo the flags of an image that root attached") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string path = make_image(dir);
  const test::TempDir stage;
  REQUIRE(chmod(stage.path().c_str(), 0755) == 0);
  const std::string place = stage.path();
  std::string gained = test::in_child([&]() -> Result<void> {
    TRY(make_stage(place));
    {
      TRY_ASSIGN(const DetachedMount mount, user_mount(path));
      TRY_ASSIGN(const UniqueFd target, open_file(place + "/lower", O_PATH | O_DIRECTORY));
      TRY(mount.attach(target.get()));
    }
    TRY(become_user());
    TRY(enter_namespaces());
    TRY_ASSIGN(const std::string names, successes(place + "/lower", place + "/elsewhere"));
    return fail(ErrorKind::failure, "gained: " + names);
  });
  CHECK(gained == "gained:  [failed]");
}

TEST_CASE("The same attempts succeed where the user attaches the image, so the test above can fail") {
  if (geteuid() != 0) SITULA_SKIP("needs root");
  if (!have_loop_devices()) SITULA_SKIP("no loop devices");
  const test::TempDir dir;
  const std::string path = make_image(dir);
  const test::TempDir stage;
  REQUIRE(chmod(stage.path().c_str(), 0755) == 0);
  const std::string place = stage.path();
  const std::string gained = test::in_child([&]() -> Result<void> {
    TRY(make_stage(place));
    TRY_ASSIGN(const DetachedMount mount, user_mount(path));
    TRY(become_user());
    TRY(enter_namespaces());
    TRY_ASSIGN(const UniqueFd target, open_file(place + "/lower", O_PATH | O_DIRECTORY));
    TRY(mount.attach(target.get()));
    TRY_ASSIGN(const std::string names, successes(place + "/lower", place + "/elsewhere"));
    return fail(ErrorKind::failure, "gained: " + names);
  });
  CHECK(gained == "gained: " + all_attempts() + " [failed]");
}
