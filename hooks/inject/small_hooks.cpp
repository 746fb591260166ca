// 10-aptfix, 10-home and 10-localtime: a file, a mount and a link of the host's.
#include <filesystem>

#include <fcntl.h>

#include "common/sys/fd_path.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxZoneBytes = size_t{1} << 20U;
constexpr std::string_view kPath = "/etc/localtime";

/// Target of the host's /etc/localtime; empty when it is no link.
std::string link_of(const RootDir& host_root) {
  const auto directory = host_root.open_at("/etc", O_PATH | O_DIRECTORY);
  std::error_code error;
  return directory ? std::filesystem::read_symlink(fd_path(directory->get()) + "/localtime", error).string() : "";
}

}  // namespace

Result<ContainerEdits> aptfix_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.remap_root || context.has_range || !context.root.exists("/etc/debian_version")) return edits;
  edits.files.push_back(
      {FileChange::Kind::write, "/etc/apt/apt.conf.d/enroot", "APT::Sandbox::User \"root\";\n", 0644});
  return edits;
}

Result<ContainerEdits> home_hook(const HookContext& context) {
  ContainerEdits edits;
  if (!context.mount_home) return edits;
  std::string home = context.host.get_or("HOME", "");
  if (home.empty()) home = context.user.home;
  const std::string inside = context.remap_root ? "/root" : home;
  edits.environment.set("HOME", inside);
  edits.mounts_after_hooks.push_back({.source = home,
                                      .target = inside,
                                      .create = CreateTarget::directory,
                                      .flags = {.no_suid = true},
                                      .origin = "built-in hook home"});
  return edits;
}

Result<ContainerEdits> localtime_hook(const HookContext& context) {
  ContainerEdits edits;
  const std::string link = link_of(context.host_root);
  if (link.empty()) return edits;
  const auto zone = context.host_root.read_file(kPath, kMaxZoneBytes);
  // A link to a zone that the host does not have says nothing worth copying.
  if (!zone) return edits;
  // The link is relative to /etc.
  const std::string file = link.starts_with('/') ? link : "/etc/" + link;
  if (!context.root.exists(file)) edits.files.push_back({FileChange::Kind::write, file, *zone, 0644});
  edits.files.push_back({FileChange::Kind::link, std::string(kPath), link, 0777});
  return edits;
}

}  // namespace situla
