#include "hooks/inject/cdi/mount_edits.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla::cdi {
namespace {

constexpr const char* kStale =
    "the file may be older than the driver: have the vendor's tool write it again (nvidia-ctk cdi generate, amd-ctk "
    "cdi generate)";

std::string number_text(const DeviceNumber& number) {
  return std::string(1, number.type) + " " + std::to_string(number.major) + ":" + std::to_string(number.minor);
}

/// Whether to go on with a device that may be denied.
Result<bool> permitted(const HostNode& found, const std::string& path, const Wish& wish, Count& count, LogSink& log) {
  ++count.devices;
  if (!found.denied) return true;
  ++count.denied;
  const std::string reason = "the device cgroup of this job step does not allow it";
  if (wish.denied == Denied::fail) return fail(ErrorKind::denied, wish.name + ": " + path + ": " + reason);
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
    const std::string said = node.number ? number_text(*node.number) : std::string(1, node.type);
    return fail(Error(ErrorKind::corrupt, wish.spec.file + ": " + node.host_path + " is " + number_text(host) +
                                              " on this host, and " + said + " in the file")
                    .with_hint(kStale));
  }
  if (node.number && node.number->major != host.major)
    log.info(wish.spec.file + ": " + node.host_path + " is " + number_text(host) + " now, and was " +
             number_text(*node.number) + " when the file was written");
  return {};
}

struct Flag {
  std::string_view word;
  bool MountFlags::*flag;
  bool set;
};

/// mount(8). Flags are only ever added: what the source's own mount forbids stays forbidden.
constexpr std::array<Flag, 18> kFlags = {{{"ro", &MountFlags::read_only, true},
                                          {"rro", &MountFlags::read_only, true},
                                          {"rw", &MountFlags::read_only, false},
                                          {"nosuid", &MountFlags::no_suid, true},
                                          {"rnosuid", &MountFlags::no_suid, true},
                                          {"suid", &MountFlags::no_suid, false},
                                          {"nodev", &MountFlags::no_dev, true},
                                          {"rnodev", &MountFlags::no_dev, true},
                                          {"dev", &MountFlags::no_dev, false},
                                          {"noexec", &MountFlags::no_exec, true},
                                          {"rnoexec", &MountFlags::no_exec, true},
                                          {"exec", &MountFlags::no_exec, false},
                                          {"nosymfollow", &MountFlags::no_symfollow, true},
                                          {"rnosymfollow", &MountFlags::no_symfollow, true},
                                          {"symfollow", &MountFlags::no_symfollow, false},
                                          {"noatime", &MountFlags::no_atime, true},
                                          {"rnoatime", &MountFlags::no_atime, true},
                                          {"atime", &MountFlags::no_atime, false}}};

/// What changes nothing here: mounts of a container are private to it, and get no ids but the job's user's.
constexpr std::array<std::string_view, 17> kWithoutEffect = {
    "bind",  "rbind",    "private",    "rprivate",    "slave",    "rslave",     "shared",      "rshared", "unbindable",
    "async", "relatime", "norelatime", "strictatime", "diratime", "nodiratime", "runbindable", "defaults"};

struct Options {
  MountFlags flags;
  bool recursive = false;
  mode_t mode = 0755;  ///< tmpfs
};

Options read_options(const Mount& mount, const Wish& wish, LogSink& log) {
  Options options;
  for (const std::string& word : mount.options) {
    const auto flag = std::find_if(kFlags.begin(), kFlags.end(), [&](const Flag& f) { return f.word == word; });
    if (flag != kFlags.end()) options.flags.*flag->flag = flag->set;
    if (word == "rbind") options.recursive = true;
    const bool is_mode = mount.type == "tmpfs" && word.starts_with("mode=");
    if (is_mode) options.mode = static_cast<mode_t>(std::strtoul(word.c_str() + 5, nullptr, 8) & 07777U);
    const bool known = flag != kFlags.end() || is_mode || (mount.type == "tmpfs" && word.starts_with("size=")) ||
                       std::find(kWithoutEffect.begin(), kWithoutEffect.end(), word) != kWithoutEffect.end();
    if (!known)
      log.warning(wish.spec.file + ": ignoring the option " + printable(word) + " of the mount at " +
                  printable(mount.container_path));
  }
  return options;
}

/// What comes and goes with a daemon, and what only the kernel reads: a container works without.
bool may_be_missing(const Mount& mount) {
  static constexpr std::array<std::string_view, 4> kVolatile = {"/run/", "/var/run/", "/tmp/", "/lib/firmware/"};
  return std::any_of(kVolatile.begin(), kVolatile.end(),
                     [&](std::string_view directory) { return mount.host_path.starts_with(directory); });
}

Result<void> add_bind(const Mount& mount, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log) {
  const Options options = read_options(mount, wish, log);
  const auto found = context.look(mount.host_path);
  if (!found && may_be_missing(mount)) {
    log.warning(wish.spec.file + ": leaving out the mount at " + printable(mount.container_path) + ": " +
                found.error().message());
    return {};
  }
  if (!found) return fail(Error(found.error()).with_context(wish.spec.file).with_hint(kStale));
  MountEdit edit;
  edit.flags = options.flags;
  if (found->number) {
    TRY_ASSIGN(const bool wanted, permitted(*found, mount.host_path, wish, count, log));
    if (!wanted) return {};
    edit.flags.no_dev = false;  // Intel's links of /dev/dri/by-path: with it they could not be opened
  }
  edit.source = mount.host_path;
  edit.target = mount.container_path;
  edit.recursive = options.recursive;
  edit.on_failure = may_be_missing(mount) ? OnFailure::warn : OnFailure::fail;
  edit.origin = wish.spec.file;
  ContainerEdits more;
  more.mounts.push_back(std::move(edit));
  append(edits, std::move(more));
  return {};
}

}  // namespace

Result<void> add_node(const DeviceNode& node, const Wish& wish, const CdiContext& context, ContainerEdits& edits,
                      Count& count, LogSink& log) {
  const auto found = context.look(node.host_path);
  if (!found) {
    const bool complete = node.number || node.fifo;  // a runtime with privilege would make the node
    if (!complete || found.error().kind() != ErrorKind::not_found)
      return fail(Error(found.error()).with_context(wish.spec.file).with_hint(kStale));
    log.warning(wish.spec.file + ": leaving out " + printable(node.path) + ": this host has no " +
                printable(node.host_path));
    return {};
  }
  if (node.fifo != found->fifo || (!node.fifo && !found->number))
    return fail(Error(ErrorKind::corrupt, wish.spec.file + ": " + node.host_path + " is no " +
                                              (node.fifo ? "FIFO" : "device") + " on this host")
                    .with_hint(kStale));
  ContainerEdits more;
  if (node.fifo) {
    MountEdit mount;
    mount.source = node.host_path;
    mount.target = node.path;
    mount.origin = wish.spec.file;
    more.mounts.push_back(std::move(mount));
  } else {
    TRY(check_number(node, *found->number, wish, log));
    TRY_ASSIGN(const bool wanted, permitted(*found, node.host_path, wish, count, log));
    if (wanted) more.devices.push_back({node.host_path, node.path, found->number, OnFailure::fail, wish.spec.file});
  }
  append(edits, std::move(more));
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
  const Options options = read_options(mount, wish, log);
  ContainerEdits more;
  more.covers.push_back({mount.container_path, options.mode, options.flags, OnFailure::fail, wish.spec.file});
  append(edits, std::move(more));
  return {};
}

}  // namespace situla::cdi
