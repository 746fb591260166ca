#include <array>
#include <climits>

#include <fcntl.h>
#include <unistd.h>

#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxZoneBytes = size_t{1} << 20U;
constexpr std::string_view kPath = "/etc/localtime";

/// Target of the host's /etc/localtime; empty when it is no link.
std::string link_of(const RootDir& host_root) {
  const auto directory = host_root.open_at("/etc", O_PATH | O_DIRECTORY);
  if (!directory) return "";
  std::array<char, PATH_MAX> target{};
  const ssize_t size = readlinkat(directory->get(), "localtime", target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<size_t>(size)) : std::string();
}

}  // namespace

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
