// Mounts in a user namespace, with the new mount calls and with mount(2).
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/mount/overlay.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/memory_log.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

/// A directory of the test user's, and the same body in both modes.
class Both {
 public:
  Both() {
    REQUIRE(chmod(dir.path().c_str(), 0755) == 0);
    for (const char* name : {"source/inner", "target", "other", "root/old"})
      std::filesystem::create_directories(dir / name);
    dir.write("source/file", "content");
    dir.write("file", "");
    REQUIRE(std::system(("chmod -R a+rwX " + dir.path()).c_str()) == 0);
    test::give_to_user(dir.path());
  }
  void run(const test::Body& body) const {
    for (const MountApi api : {MountApi::modern, MountApi::classic}) {
      set_mount_api(api);
      CAPTURE(api == MountApi::classic);
      CHECK(test::in_user_namespace(body) == "");
    }
    set_mount_api(MountApi::automatic);
  }
  test::TempDir dir;
};

Result<UniqueFd> open_path(const std::string& path) {
  return open_file(path, O_PATH);
}

Result<unsigned long> flags_of(const std::string& path) {
  struct statvfs status {};
  if (statvfs(path.c_str(), &status) != 0) return fail_errno(errno, "statvfs " + path);
  return status.f_flag;
}

}  // namespace

TEST_CASE("A new file system is mounted by descriptor with its options and flags") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    TRY(mount_new_at(target.get(), "tmpfs", "tmpfs", {{"mode", "0700"}, {"size", "65536"}},
                     {.no_suid = true, .no_dev = true, .no_exec = true}, "target"));
    TRY_ASSIGN(UniqueFd mounted, open_path(both.dir / "target"));
    TRY_ASSIGN(const int64_t type, filesystem_type(mounted.get()));
    EXPECT(type == TMPFS_MAGIC);
    TRY_ASSIGN(const unsigned long flags, flags_of(both.dir / "target"));
    EXPECT((flags & (ST_NOSUID | ST_NODEV | ST_NOEXEC)) == (ST_NOSUID | ST_NODEV | ST_NOEXEC));
    EXPECT((flags & ST_RDONLY) == 0);
    struct stat status {};
    EXPECT(stat((both.dir / "target").c_str(), &status) == 0 && (status.st_mode & 07777) == 0700);
    TRY(write_file_atomically(both.dir / "target/x", "x", 0600));
    TRY(add_mount_flags(mounted.get(), {.read_only = true}, false));
    EXPECT(!write_file_atomically(both.dir / "target/y", "x", 0600));
    const auto busy = unmount(both.dir / "target", false);
    EXPECT(!busy && busy.error().errnum() == EBUSY);
    mounted.reset();
    TRY(unmount(both.dir / "target", false));
    EXPECT(access((both.dir / "target/x").c_str(), F_OK) != 0);
    return {};
  });
}

TEST_CASE("A refused mount names type, target and reason, with what the kernel says") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    const auto unknown = mount_new_at(target.get(), "nosuchfs", "x", {}, {}, "/data");
    EXPECT(!unknown);
    EXPECT(unknown.error().message() == "mount on /data: mount nosuchfs from x: No such device");
    EXPECT(unknown.error().hint().find("modprobe nosuchfs") != std::string::npos);
    EXPECT(unknown.error().code() == ErrorCode::kernel);
    const auto option = mount_new_at(target.get(), "tmpfs", "tmpfs", {{"bogus", "1"}}, {}, "/data");
    EXPECT(!option);
    EXPECT(option.error().message().find("mount on /data: mount tmpfs") == 0);
    if (modern_mount_api())
      EXPECT(option.error().message().find("tmpfs: Unknown parameter 'bogus'") != std::string::npos);
    const auto block = mount_new_at(target.get(), "ext4", "/dev/loop0", {}, {}, "/data");
    EXPECT(!block);
    EXPECT(block.error().kind() == ErrorKind::denied);
    EXPECT(block.error().code() == ErrorCode::mount_failed);
    return {};
  });
}

TEST_CASE("Files and directories are bound, and flags reach submounts when asked") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd inner, open_path(both.dir / "source/inner"));
    TRY(mount_new_at(inner.get(), "tmpfs", "tmpfs", {}, {}, "inner"));
    TRY_ASSIGN(const UniqueFd source, open_path(both.dir / "source"));
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    TRY_ASSIGN(const UniqueFd other, open_path(both.dir / "other"));
    TRY(bind_at(target.get(), source.get(), true, {.read_only = true, .no_exec = true}, "target"));
    TRY(bind_at(other.get(), source.get(), false, {}, "other"));
    TRY_ASSIGN(const unsigned long top, flags_of(both.dir / "target"));
    TRY_ASSIGN(const unsigned long below, flags_of(both.dir / "target/inner"));
    TRY_ASSIGN(const unsigned long original, flags_of(both.dir / "source/inner"));
    EXPECT((top & (ST_RDONLY | ST_NOEXEC)) == (ST_RDONLY | ST_NOEXEC));
    EXPECT((below & (ST_RDONLY | ST_NOEXEC)) == (ST_RDONLY | ST_NOEXEC));
    EXPECT((original & (ST_RDONLY | ST_NOEXEC)) == 0);
    // The second bind was not recursive.
    TRY(write_file_atomically(both.dir / "source/inner/x", "x", 0600));
    EXPECT(access((both.dir / "target/inner/x").c_str(), F_OK) == 0);
    EXPECT(access((both.dir / "other/inner/x").c_str(), F_OK) != 0);
    TRY(write_file_atomically(both.dir / "other/inner/y", "x", 0600));
    TRY(remove_tree(both.dir / "other/inner/y"));
    TRY_ASSIGN(const UniqueFd from, open_path(both.dir / "source/file"));
    TRY_ASSIGN(const UniqueFd onto, open_path(both.dir / "file"));
    TRY(bind_at(onto.get(), from.get(), false, {.read_only = true}, "file"));
    TRY_ASSIGN(const std::string text, read_file(both.dir / "file"));
    EXPECT(text == "content");
    EXPECT(open((both.dir / "file").c_str(), O_WRONLY) < 0 && errno == EROFS);
    const auto mixed = bind_at(onto.get(), source.get(), false, {}, "file");
    EXPECT(!mixed && mixed.error().message().find("bind on file: ") == 0);
    return {};
  });
}

TEST_CASE("Flags that an outer mount has locked do not get in the way of adding others") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    TRY(mount_new_at(target.get(), "tmpfs", "tmpfs", {}, {.no_suid = true, .no_dev = true}, "target"));
    // In a namespace below, nosuid and nodev are locked.
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    TRY(unshare_namespaces(kUserNs | kMountNs));
    TRY(write_own_id_maps(uid, uid, gid, gid));
    TRY_ASSIGN(const UniqueFd mounted, open_path(both.dir / "target"));
    TRY_ASSIGN(const UniqueFd other, open_path(both.dir / "other"));
    TRY(bind_at(other.get(), mounted.get(), false, {.read_only = true}, "other"));
    TRY_ASSIGN(const unsigned long flags, flags_of(both.dir / "other"));
    EXPECT((flags & (ST_RDONLY | ST_NOSUID | ST_NODEV)) == (ST_RDONLY | ST_NOSUID | ST_NODEV));
    return {};
  });
}

TEST_CASE("A non-recursive bind of a tree with locked submounts explains itself") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd inner, open_path(both.dir / "source/inner"));
    TRY(mount_new_at(inner.get(), "tmpfs", "tmpfs", {}, {}, "inner"));
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    TRY(unshare_namespaces(kUserNs | kMountNs));
    TRY(write_own_id_maps(uid, uid, gid, gid));
    TRY_ASSIGN(const UniqueFd source, open_path(both.dir / "source"));
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    const auto refused = bind_at(target.get(), source.get(), false, {}, "target");
    EXPECT(!refused);
    EXPECT(refused.error().hint().find("rbind") != std::string::npos);
    return bind_at(target.get(), source.get(), true, {}, "target");
  });
}

TEST_CASE("The process moves into a new root and the old one is gone") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd place, open_path(both.dir / "root"));
    TRY(mount_new_at(place.get(), "tmpfs", "tmpfs", {}, {}, "root"));
    TRY(write_file_atomically(both.dir / "root/marker", "here", 0600));
    TRY_ASSIGN(const UniqueFd root, open_path(both.dir / "root"));
    TRY(pivot_into(root.get()));
    TRY_ASSIGN(const std::string marker, read_file("/marker"));
    EXPECT(marker == "here");
    EXPECT(access("/etc", F_OK) != 0);
    EXPECT(access((both.dir / "source").c_str(), F_OK) != 0);
    return {};
  });
}

TEST_CASE("Pivoting into what is no mount fails with the reason") {
  const Both both;
  both.run([&]() -> Result<void> {
    TRY_ASSIGN(const UniqueFd root, open_path(both.dir / "root"));
    const auto refused = pivot_into(root.get());
    EXPECT(!refused);
    EXPECT(refused.error().hint().find("mount point") != std::string::npos);
    return {};
  });
}

TEST_CASE("An overlay works in both modes, on tmpfs and on the disk below /tmp") {
  const Both both;
  for (const char* name : {"upper", "work"}) {
    std::filesystem::create_directories(both.dir / name);
    test::give_to_user(both.dir / name);
  }
  both.run([&]() -> Result<void> {
    test::MemoryLog log;
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    TRY(mount_overlay({{both.dir / "source"}, both.dir / "upper", both.dir / "work", false}, target.get(), {}, log));
    EXPECT(log.messages.size() == 1 && log.messages[0].text == "overlay mounted with userxattr,index=off");
    TRY(write_file_atomically(both.dir / "target/file", "changed", 0600));
    TRY_ASSIGN(const std::string below, read_file(both.dir / "source/file"));
    EXPECT(below == "content");
    TRY_ASSIGN(const std::string above, read_file(both.dir / "upper/file"));
    EXPECT(above == "changed");
    TRY_ASSIGN(const UniqueFd other, open_path(both.dir / "other"));
    TRY(mount_new_at(other.get(), "tmpfs", "tmpfs", {}, {}, "other"));
    EXPECT(overlay_upper_in_use(both.dir / "upper", both.dir / "other") == modern_mount_api());
    EXPECT(!overlay_upper_in_use(both.dir / "source", both.dir / "other"));
    TRY(make_directories(both.dir / "other/upper,x:y", 0700));
    TRY(make_directories(both.dir / "other/work", 0700));
    TRY_ASSIGN(const UniqueFd again, open_path(both.dir / "root"));
    TRY(mount_overlay({{both.dir / "source"}, both.dir / "other/upper,x:y", both.dir / "other/work", true}, again.get(),
                      {.no_suid = true, .no_dev = true}, log));
    TRY_ASSIGN(const unsigned long flags, flags_of(both.dir / "root"));
    EXPECT((flags & (ST_NOSUID | ST_NODEV)) == (ST_NOSUID | ST_NODEV));
    EXPECT(log.messages.size() == 2 && log.messages[1].text == "overlay mounted with userxattr,volatile,index=off");
    return {};
  });
}

TEST_CASE("An upper layer is tried out before it is relied on") {
  const Both both;
  CHECK(test::as_user([&] { return overlay_upper_works(both.dir / "target"); }) == "");
  CHECK(test::in_user_namespace([&] { return overlay_upper_works(both.dir / "target"); }) == "");
  CHECK(std::filesystem::is_empty(both.dir / "target"));
  // An overlay cannot hold the upper layer of another one.
  const std::string answer = test::in_user_namespace([&]() -> Result<void> {
    NullLog log;
    TRY_ASSIGN(const UniqueFd other, open_path(both.dir / "other"));
    TRY(mount_new_at(other.get(), "tmpfs", "tmpfs", {}, {}, "other"));
    for (const char* name : {"other/upper", "other/work"}) TRY(make_directories(both.dir / name, 0700));
    TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "target"));
    TRY(mount_overlay({{both.dir / "source"}, both.dir / "other/upper", both.dir / "other/work", true}, target.get(),
                      {}, log));
    const auto refused = overlay_upper_works(both.dir / "target");
    EXPECT(!refused);
    EXPECT(refused.error().kind() == ErrorKind::unsupported);
    EXPECT(refused.error().text().find("lies on overlay, which cannot hold one") != std::string::npos);
    return {};
  });
  CHECK(answer == "");
}

TEST_CASE("A mount below a tree stops its removal") {
  const Both both;
  CHECK(test::in_user_namespace([&]() -> Result<void> {
          TRY(make_directories(both.dir / "other/tree/mounted", 0700));
          TRY_ASSIGN(const UniqueFd source, open_path(both.dir / "source"));
          TRY_ASSIGN(const UniqueFd target, open_path(both.dir / "other/tree/mounted"));
          TRY(bind_at(target.get(), source.get(), false, {}, "mounted"));
          const auto refused = remove_tree(both.dir / "other/tree");
          EXPECT(!refused && refused.error().errnum() == EBUSY);
          EXPECT(access((both.dir / "source/file").c_str(), F_OK) == 0);
          TRY(unmount(both.dir / "other/tree/mounted", false));
          return remove_tree(both.dir / "other/tree");
        }) == "");
}
