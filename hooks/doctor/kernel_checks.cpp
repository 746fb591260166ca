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

bool needs_root(Check& check) {
  if (geteuid() == 0) return false;
  check.state = State::info;
  check.found = "not tried: needs root";
  return true;
}

}  // namespace

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
  return {"mount-api", State::warn, "only mount(2); images cannot be id-mapped",
          "Linux 5.12 or newer has the descriptor-based calls"};
}

Check check_overlay() {
  Check check{"overlay", State::ok, "works in a user namespace", ""};
  if (const auto tried = try_overlay(ordinary_user()); !tried) {
    check.state = State::warn;
    check.found = tried.error().message();
    check.fix = "Linux 5.11 or newer with CONFIG_OVERLAY_FS, modprobe overlay; otherwise images are extracted";
  }
  return check;
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
  Check check{"squashfs-compressors", State::ok, "", ""};
  if (needs_root(check)) return check;
  const auto names = squashfs_compressors();
  if (!names) {
    check.state = State::warn;
    check.found = names.error().message();
    check.fix = "see the lines squashfs and loop";
    return check;
  }
  check.found = names->empty() ? "none" : join(*names, " ");
  if (std::find(names->begin(), names->end(), "zstd") == names->end()) {
    check.state = State::warn;
    check.fix = "CONFIG_SQUASHFS_ZSTD is missing: zstd images are served by FUSE, which is slower";
  }
  return check;
}

Check check_idmapped_mounts() {
  Check check{"idmapped-mounts", State::ok, "squashfs mounts can show the job's user as owner", ""};
  if (needs_root(check)) return check;
  if (const auto tried = try_idmapped_mount(); !tried) {
    check.state = State::warn;
    check.found = tried.error().message();
    check.fix = "Linux 6.2 or newer id-maps squashfs; otherwise FUSE serves images";
  }
  return check;
}

Check check_fuse(const Places& places) {
  const std::string device = places.dev + "/fuse";
  if (!built_in(Part::fuse))
    return {"fuse", State::warn, not_built_in(Part::fuse), "without it images are mounted by the kernel, or extracted"};
  struct stat status {};
  if (stat(device.c_str(), &status) != 0) {
    return {"fuse", State::warn, device + " is missing", "modprobe fuse, and list it in /etc/modules-load.d"};
  }
  if ((status.st_mode & 0666U) != 0666U) {
    return {"fuse", State::warn, device + " is not open to ordinary users",
            "chmod 666 " + device + " (udev does it on a normal node)"};
  }
  const int fd = open(device.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return {"fuse", State::warn, device + " cannot be opened: " + strerror(errno),
            "modprobe fuse; in a container or a job, its device cgroup has to allow c 10:229"};
  close(fd);
  return {"fuse", State::ok, device + " can be opened by everybody", ""};
}

}  // namespace situla::doctor
