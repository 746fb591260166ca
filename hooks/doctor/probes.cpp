#include "hooks/doctor/probes.hpp"

#include <array>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/loop_device.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"

namespace situla::doctor {
namespace {

constexpr uid_t kNobody = 65534;
constexpr uid_t kProbeOwner = 54321;  ///< any id but 0: the owner that an id-mapped mount shall show

Result<void> attempt(const std::function<Result<void>()>& function) {
  const Result<std::string> answer = in_child([&]() { return function().map([] { return std::string(); }); });
  if (!answer) return fail(answer.error());
  return {};
}

Result<void> enter_user_namespace(const Ordinary& user) {
  if (user.switch_to) {
    TRY(become(Identity{user.uid, user.gid, {}}));
    TRY(own_proc_files_again());
  }
  // One call for each, as the builder does it: some policies allow the user namespace and forbid what comes after.
  TRY(unshare_namespaces(kUserNs));
  TRY(write_own_id_maps(user.uid, user.uid, user.gid, user.gid));
  TRY(unshare_namespaces(kMountNs));
  return set_propagation("/", Propagation::private_mount, true);
}

/// An empty squashfs whose metadata is stored, not compressed, so that the compressor (bytes 20 and 21) can be any.
/// mksquashfs EMPTY FILE -noI -noD -noF -noX -all-root -nopad -no-exports -no-xattrs -mkfs-time 0 -all-time 0
std::string empty_squashfs(uint8_t compressor) {
  constexpr std::array<uint8_t, 144> kImage = {
      0x68, 0x73, 0x71, 0x73, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x01, 0x00, 0x11, 0x00, 0x4b, 0x03, 0x01, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x00, 0x00, 0x90, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x88, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x60, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x82, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x20, 0x80, 0x01, 0x00, 0xed, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00,
      0x02, 0x00, 0x00, 0x00, 0x04, 0x80, 0x00, 0x00, 0x00, 0x00, 0x82, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  std::string image(kImage.begin(), kImage.end());
  image[20] = static_cast<char>(compressor);
  image.resize(4096);  // loop devices end at a whole sector
  return image;
}

Result<DetachedMount> mount_empty_squashfs(uint8_t compressor) {
  TRY_ASSIGN(const UniqueFd image, sealed_memory("empty.sqsh", empty_squashfs(compressor)));
  TRY_ASSIGN(const UniqueFd read_only, open_file(fd_path(image.get()), O_RDONLY));
  TRY_ASSIGN(const LoopDevice loop, LoopDevice::attach(read_only.get(), "situla-doctor"));
  const MountFlags flags{.read_only = true, .no_suid = true, .no_dev = true};
  return new_mount("squashfs", loop.path(), {}, flags);
}

constexpr uint8_t kGzip = 1;

}  // namespace

Result<std::string> in_child(const std::function<Result<std::string>()>& function, std::chrono::seconds limit) {
  TRY_ASSIGN(auto ends, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    ends.first.reset();
    const Result<std::string> result = function();
    const std::string answer = result ? "ok" + std::string(1, '\0') + *result
                                      : std::string(to_string(result.error().kind())) + '\0' +
                                            result.error().message() + '\0' + result.error().hint() + '\0' +
                                            std::string(to_string(result.error().code()));
    (void)send_packet(ends.second.get(), answer);
    _exit(0);
  }
  ends.second.reset();
  TRY_ASSIGN(const auto status, child.wait_for(limit));
  if (!status) return fail(ErrorKind::failure, "gave no answer in " + std::to_string(limit.count()) + " s");
  TRY_ASSIGN(const auto packet, receive_packet(ends.first.get(), size_t{64} << 10U));
  if (!packet) return fail(ErrorKind::failure, "the probe " + status->text());
  const std::vector<std::string_view> fields = split(packet->bytes, '\0');
  if (fields.size() == 2 && fields[0] == "ok") return std::string(fields[1]);
  if (fields.size() != 4) return fail(ErrorKind::corrupt, "the probe gave no readable answer");
  return fail(Error(error_kind_from_string(fields[0]), std::string(fields[1]))
                  .with_hint(fields[2])
                  .with_code(error_code_from_string(fields[3])));
}

Ordinary ordinary_user() {
  if (geteuid() == 0) return {kNobody, kNobody, true};
  return {geteuid(), getegid(), false};
}

Result<void> try_user_namespace(const Ordinary& user) {
  return attempt([&]() -> Result<void> {
    TRY(enter_user_namespace(user));
    return {};
  });
}

Result<void> try_overlay(const Ordinary& user) {
  return attempt([&]() -> Result<void> {
    TRY(enter_user_namespace(user));
    TRY_ASSIGN(const UniqueFd stage, open_file("/tmp", O_PATH | O_DIRECTORY));
    TRY(mount_new_at(stage.get(), "tmpfs", "tmpfs", {{"size", "1m"}}, {}, "/tmp"));
    for (const char* name : {"/tmp/lower", "/tmp/upper", "/tmp/work", "/tmp/merged"}) TRY(make_directories(name, 0755));
    TRY(write_file_atomically("/tmp/lower/file", "lower", 0644));
    TRY_ASSIGN(const UniqueFd merged, open_file("/tmp/merged", O_PATH | O_DIRECTORY));
    TRY(mount_new_at(
        merged.get(), "overlay", "overlay",
        {{"lowerdir", "/tmp/lower"}, {"upperdir", "/tmp/upper"}, {"workdir", "/tmp/work"}, {"userxattr", ""}}, {},
        "/tmp/merged"));
    TRY(write_file_atomically("/tmp/merged/file", "upper", 0644));
    TRY_ASSIGN(const std::string lower, read_file("/tmp/lower/file"));
    TRY_ASSIGN(const std::string upper, read_file("/tmp/upper/file"));
    if (lower != "lower" || upper != "upper") return fail(ErrorKind::failure, "the overlay mixed its layers up");
    return {};
  });
}

Result<void> try_kernel_mount() {
  return attempt([]() -> Result<void> {
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    TRY(mount_empty_squashfs(kGzip));
    return {};
  });
}

Result<void> try_idmapped_mount() {
  return attempt([]() -> Result<void> {
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    TRY_ASSIGN(DetachedMount mount, mount_empty_squashfs(kGzip));
    TRY_ASSIGN(const UniqueFd mapping, make_mapping_namespace(kProbeOwner, kProbeOwner));
    TRY(mount.map_ids(mapping.get()));
    struct stat status {};
    if (fstat(mount.fd(), &status) != 0) return fail_errno(errno, "stat the mounted image");
    if (status.st_uid != kProbeOwner)
      return fail(ErrorKind::unsupported, "the mapped mount shows owner " + std::to_string(status.st_uid));
    return {};
  });
}

Result<void> try_shared_blocks(const std::string& directory) {
  constexpr size_t kBlock = 4096;
  TRY_ASSIGN(const UniqueFd from, open_file(directory, O_TMPFILE | O_RDWR, 0600));
  TRY_ASSIGN(const UniqueFd to, open_file(directory, O_TMPFILE | O_RDWR, 0600));
  TRY(write_all(from.get(), std::string(kBlock, 'x')));
  return share_all_blocks(from.get(), to.get());
}

Result<std::vector<std::string>> squashfs_compressors() {
  constexpr std::array<std::pair<uint8_t, std::string_view>, 5> kCompressors = {
      {{1, "gzip"}, {3, "lzo"}, {4, "xz"}, {5, "lz4"}, {6, "zstd"}}};
  const auto probe = [&]() -> Result<std::string> {
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    std::string names;
    for (const auto& [id, name] : kCompressors) {
      const Result<DetachedMount> mount = mount_empty_squashfs(id);
      // EIO is lz4 missing its options in our image: the kernel knows lz4. An unknown compressor is EINVAL.
      if (mount || mount.error().errnum() == EIO) names += std::string(name) + " ";
    }
    return names;
  };
  TRY_ASSIGN(const std::string answer, in_child(probe));

  std::vector<std::string> names;
  for (const std::string_view name : split_words(answer)) names.emplace_back(name);
  return names;
}

}  // namespace situla::doctor
