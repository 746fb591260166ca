#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/parts.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/dm_device.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/probes.hpp"

namespace situla::doctor {
namespace {

/// {6, 18} of "6.18.1-generic".
std::pair<uint64_t, uint64_t> version_of(std::string_view release) {
  const std::vector<std::string_view> numbers = split(release, '.');
  const auto leading = [](std::string_view text) {
    return parse_unsigned(text.substr(0, text.find_first_not_of("0123456789"))).value_or(0);
  };
  return {leading(numbers[0]), numbers.size() > 1 ? leading(numbers[1]) : 0};
}

Check not_tried(const char* name) {
  return {name, State::info, "not tried: needs root", ""};
}

/// The kernel mounts images by these calls only: what else it could do for that is of no use without them.
constexpr const char* kNoMountApi = "not tried: see the line mount-api";

}  // namespace

Check check_of(const char* name, const Result<void>& tried, const char* works, State otherwise,
               const std::string& fix) {
  if (tried) return {name, State::ok, works, ""};
  return {name, otherwise, tried.error().message(), fix};
}

std::string first_line(const std::string& path) {
  const Result<std::string> content = read_file(path, 4096);
  return content ? std::string(trim(split(*content, '\n').front())) : "";
}

Check check_kernel(const Places& places) {
  utsname names{};
  uname(&names);
  const std::string release =
      places.proc == "/proc" ? std::string(names.release) : first_line(places.proc + "/sys/kernel/osrelease");
  Check check{"kernel", State::ok, "Linux " + release + " " + names.machine, ""};
  const auto version = version_of(release);
  if (version < std::pair<uint64_t, uint64_t>{4, 18}) {
    check.state = State::fail;
    check.fix = "install Linux 4.18 or newer";
  } else if (version < std::pair<uint64_t, uint64_t>{5, 11}) {
    check.state = State::warn;
    check.fix =
        "overlay in user namespaces needs Linux 5.11 unless the distribution backported it; otherwise images are "
        "extracted";
  }
  return check;
}

Check check_mount_api() {
  if (modern_mount_api()) return {"mount-api", State::ok, "fsopen, move_mount and mount_setattr work", ""};
  return {"mount-api", State::warn, "only mount(2): the kernel mounts no images",
          "Linux 5.12 or newer has the calls that mount by descriptor"};
}

Check check_overlay() {
  return check_of("overlay", try_overlay(ordinary_user()), "works in a user namespace", State::warn,
                  "Linux 5.11 or newer with CONFIG_OVERLAY_FS, modprobe overlay; otherwise images are extracted");
}

Check check_squashfs(const Places& places) {
  const Result<std::string> list = read_file(places.proc + "/filesystems", size_t{64} << 10U);
  if (list)
    for (const std::string_view line : split(*list, '\n'))
      if (trim(line.substr(line.find('\t') + 1)) == "squashfs")
        return {"squashfs", State::ok, "the kernel reads squashfs", ""};
  return {"squashfs", State::warn, "the kernel has not loaded squashfs",
          "modprobe squashfs, and list it in /etc/modules-load.d"};
}

Check check_loop(const Places& places) {
  const std::string control = places.dev + "/loop-control";
  if (access(control.c_str(), F_OK) != 0)
    return {"loop", State::warn, control + " is missing", "modprobe loop, and list it in /etc/modules-load.d"};
  Check check{"loop", State::ok, control, ""};
  // Zero, and no such parameter, is no limit.
  const uint64_t most = parse_unsigned(first_line(places.sys + "/module/loop/parameters/max_loop")).value_or(0);
  check.facts = {{"maxLoop", std::to_string(most)}};
  if (geteuid() != 0) {
    check.found += " is there (not tried: needs root)";
    return check;
  }
  if (!modern_mount_api()) {
    check.found += std::string(" is there (") + kNoMountApi + ")";
    return check;
  }
  const auto tried = try_kernel_mount();
  check.found = tried ? "a squashfs image mounts through a loop device" : tried.error().message();
  if (tried) return check;
  check.state = State::warn;
  if (most > 0) check.found += " (max_loop is " + std::to_string(most) + ")";
  check.fix = !tried.error().hint().empty() ? tried.error().hint()
              : most > 0 ? "losetup --list shows who has them; remove max_loop from the kernel's parameters"
                         : "loop devices and squashfs are needed for the kernel to mount images";
  return check;
}

Check check_compressors() {
  constexpr const char* kName = "squashfs-compressors";
  if (geteuid() != 0) return not_tried(kName);
  if (!modern_mount_api()) return {kName, State::info, kNoMountApi, ""};
  const auto names = squashfs_compressors();
  if (!names) return {kName, State::warn, names.error().message(), "see the lines squashfs and loop"};
  const std::string found = names->empty() ? "none" : join(*names, " ");
  if (std::find(names->begin(), names->end(), "zstd") != names->end()) return {kName, State::ok, found, ""};
  return {kName, State::warn, found,
          "CONFIG_SQUASHFS_ZSTD is missing: zstd images are served by FUSE, which is slower"};
}

Check check_idmapped_mounts() {
  constexpr const char* kName = "idmapped-mounts";
  if (geteuid() != 0) return not_tried(kName);
  if (!modern_mount_api()) return {kName, State::info, kNoMountApi, ""};
  return check_of(kName, try_idmapped_mount(), "squashfs mounts can show the job's user as owner", State::warn,
                  "Linux 6.2 or newer id-maps squashfs; see the line image-owner");
}

Check check_image_owner(const SiteConfig& config, const Check& idmapped) {
  constexpr const char* kName = "image-owner";
  if (geteuid() != 0) return not_tried(kName);
  if (!modern_mount_api()) return {kName, State::info, kNoMountApi, ""};
  const auto allowed = [&](OwnerWay way) {
    return config.image_owner == OwnerWay::automatic || config.image_owner == way;
  };
  if (allowed(OwnerWay::idmap) && idmapped.state == State::ok)
    return {kName, State::ok, "idmap: one mount of an image serves all users", ""};
  if (allowed(OwnerWay::reflink) && try_shared_blocks(config.store_path))
    return {kName, State::ok, "reflink: each user's mount is a file that shares its blocks with the image", ""};
  if (allowed(OwnerWay::dm) && dm_available())
    return {kName, State::ok, "dm: each user's mount has one block of its own before the image's", ""};
  if (config.image_owner != OwnerWay::automatic)
    return {
        kName, State::warn,
        "image_owner = \"" + std::string(to_string(config.image_owner)) + "\" does not work here: FUSE serves images",
        "image_owner = \"auto\" in situla.toml takes what works"};
  return {kName, State::warn, "none of idmap, reflink and dm works",
          "Linux 6.2, a store on XFS or Btrfs, or modprobe dm-mod (and list it in /etc/modules-load.d); otherwise FUSE "
          "serves images"};
}

Check check_fuse(const Places& places) {
  const std::string device = places.dev + "/fuse";
  if (!built_in(Part::fuse))
    return {"fuse", State::warn, not_built_in(Part::fuse), "without it images are mounted by the kernel, or extracted"};
  struct stat status {};
  if (stat(device.c_str(), &status) != 0)
    return {"fuse", State::warn, device + " is missing", "modprobe fuse, and list it in /etc/modules-load.d"};
  if ((status.st_mode & 0666U) != 0666U)
    return {"fuse", State::warn, device + " is not open to ordinary users",
            "chmod 666 " + device + " (udev does it on a normal node)"};
  const UniqueFd fd(open(device.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd)
    return {"fuse", State::warn, device + " cannot be opened: " + strerror(errno),
            "modprobe fuse; in a container or a job, its device cgroup has to allow c 10:229"};
  return {"fuse", State::ok, device + " can be opened by everybody", ""};
}

}  // namespace situla::doctor
