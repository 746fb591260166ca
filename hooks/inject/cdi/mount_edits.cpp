#include <algorithm>
#include <array>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/inject/cdi/spec_edits.hpp"

namespace situla::cdi {
namespace {

bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr const char* kStale =
    "the file may be older than the driver: have the vendor's tool write it again (nvidia-ctk cdi generate, amd-ctk "
    "cdi generate)";

/// Whether to go on with a device that may be denied.
Result<bool> permitted(const HostNode& found, const std::string& path, const Wish& wish, Count& count, LogSink& log) {
  ++count.devices;
  if (!found.denied) return true;
  ++count.denied;
  const std::string reason = "the device cgroup of this job step does not allow it";
  if (wish.denied == Denied::fail)
    return fail(Error(ErrorKind::denied, wish.name + ": " + path + ": " + reason).with_code(ErrorCode::gpu_request));
  const std::string message = wish.name + ": leaving out " + path + ": " + reason;
  if (wish.denied == Denied::skip)
    log.debug(message);
  else
    log.warning(message);
  return false;
}

/// The node that the file was written for: majors of most drivers are given out anew at each boot, so only the major
/// may differ.
Result<void> check_number(const DeviceNode& node, const DeviceNumber& host, const Wish& wish, LogSink& log) {
  const bool other_type = node.type != 0 && node.type != host.type;
  const bool other_minor = node.number && node.number->minor != host.minor;
  if (other_type || other_minor) {
    const std::string said = node.number ? to_text(*node.number) : std::string(1, node.type);
    return fail(Error(ErrorKind::corrupt, wish.spec.file + ": " + node.host_path + " is " + to_text(host) +
                                              " on this host, and " + said + " in the file")
                    .with_code(ErrorCode::cdi)
                    .with_hint(kStale));
  }
  if (node.number && node.number->major != host.major)
    log.info(wish.spec.file + ": " + node.host_path + " is " + to_text(host) + " now, and was " +
             to_text(*node.number) + " when the file was written");
  return {};
}

/// What fstab(5) would mean by the options. Mounts of a container are private to it, a directory is bound whole only
/// with rbind, and of a memory file system only the mode is the file's to choose.
Result<MountStep> read_options(const Mount& mount, const Wish& wish, LogSink& log) {
  MountFields fields{mount.host_path, mount.container_path, mount.type, mount.options};
  const bool cover = mount.type == "tmpfs";
  if (cover) fields.source = mount.type;
  TRY_ASSIGN(MountStep step, make_step(fields, wish.spec.file));
  MountStep wanted{.kind = cover ? StepKind::cover : StepKind::host_file,
                   .source = cover ? "" : mount.host_path,
                   .target = mount.container_path,
                   .recursive = !cover && contains(mount.options, "rbind"),
                   .flags = step.flags,
                   .origin = wish.spec.file};
  if (cover) wanted.parameters.emplace_back("mode", "0755");
  for (const auto& [key, value] : step.parameters) {
    if (cover && key == "mode")
      wanted.parameters.front().second = value;
    else if (cover && key == "size" && !value.empty())
      wanted.parameters.emplace_back(key, value);
    else
      step.ignored.push_back(value.empty() ? key : key + "=" + value);
  }
  for (const std::string& word : step.ignored)
    log.warning(wish.spec.file + ": ignoring the option " + printable(word) + " of the mount at " +
                printable(mount.container_path));
  return wanted;
}

/// What comes and goes with a daemon, and what only the kernel reads: a container works without.
bool may_be_missing(const Mount& mount) {
  static constexpr std::array<std::string_view, 4> kVolatile = {"/run/", "/var/run/", "/tmp/", "/lib/firmware/"};
  return std::any_of(kVolatile.begin(), kVolatile.end(),
                     [&](std::string_view directory) { return mount.host_path.starts_with(directory); });
}

Result<void> add_bind(const Mount& mount, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log) {
  TRY_ASSIGN(MountStep step, read_options(mount, wish, log));
  const auto found = context.look(mount.host_path);
  if (!found && may_be_missing(mount)) {
    log.warning(wish.spec.file + ": leaving out the mount at " + printable(mount.container_path) + ": " +
                found.error().message());
    return {};
  }
  if (!found)
    return fail(Error(found.error()).with_context(wish.spec.file).with_code(ErrorCode::cdi).with_hint(kStale));
  if (found->number) {
    TRY_ASSIGN(const bool wanted, permitted(*found, mount.host_path, wish, count, log));
    if (!wanted) return {};
    step.flags.no_dev = false;  // Intel's links of /dev/dri/by-path: with it they could not be opened
  }
  if (may_be_missing(mount)) step.on_failure = OnFailure::warn;
  add_step(edits, std::move(step));
  return {};
}

}  // namespace

Result<HostNode> look_at_host(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return fail_errno(errno, "look at " + path);
  HostNode file;
  file.fifo = S_ISFIFO(status.st_mode);
  file.number = device_number(status);
  // The kernel asks the device cgroup last, and it alone answers EPERM (inode_permission()); nothing is opened. Slurm
  // takes reading and writing at once; MIG's nodes may be read only.
  file.denied = file.number && faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) != 0 && errno == EPERM;
  return file;
}

Result<void> add_node(const DeviceNode& node, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log) {
  const auto found = context.look(node.host_path);
  if (!found) {
    const bool complete = node.number || node.fifo;  // a runtime with privilege would make the node
    if (!complete || found.error().kind() != ErrorKind::not_found)
      return fail(Error(found.error()).with_context(wish.spec.file).with_code(ErrorCode::cdi).with_hint(kStale));
    log.warning(wish.spec.file + ": leaving out " + printable(node.path) + ": this host has no " +
                printable(node.host_path));
    return {};
  }
  if (node.fifo != found->fifo || (!node.fifo && !found->number))
    return fail(Error(ErrorKind::corrupt, wish.spec.file + ": " + node.host_path + " is no " +
                                              (node.fifo ? "FIFO" : "device") + " on this host")
                    .with_code(ErrorCode::cdi)
                    .with_hint(kStale));
  MountStep step{.kind = node.fifo ? StepKind::host_file : StepKind::device,
                 .source = node.host_path,
                 .target = node.path,
                 .number = found->number,
                 .origin = wish.spec.file};
  if (!node.fifo) {
    TRY(check_number(node, *found->number, wish, log));
    TRY_ASSIGN(const bool wanted, permitted(*found, node.host_path, wish, count, log));
    if (!wanted) return {};
  }
  add_step(edits, std::move(step));
  return {};
}

Result<void> add_mount(const Mount& mount, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                       Count& count, LogSink& log) {
  if (mount.type.empty() || mount.type == "none" || mount.type == "bind")
    return add_bind(mount, wish, context, edits, count, log);
  if (mount.type != "tmpfs") {
    log.warning(wish.spec.file + ": leaving out the " + printable(mount.type) + " at " +
                printable(mount.container_path) + ": only files and directories of the host, and tmpfs, are mounted");
    return {};
  }
  TRY_ASSIGN(MountStep cover, read_options(mount, wish, log));
  add_step(edits, std::move(cover));
  return {};
}

}  // namespace situla::cdi
