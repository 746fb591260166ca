#include "hooks/containers/named_container.hpp"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/step_name.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/kernel.hpp"
#include "hooks/containers/own_ids.hpp"

namespace situla {
namespace {

constexpr const char* kSetting = "ENROOT_DATA_PATH";

/// What a step keeps on disk has the name that enroot's users know; a container of that name ("24.10") has other
/// contents.
bool is_scratch(int directory, std::string_view name) {
  if (!step_of_scratch(name)) return false;
  const auto names = list_directory(directory, std::string(name));
  return names && std::all_of(names->begin(), names->end(), [](const std::string& entry) {
           return entry == "upper" || entry == "work" || entry == "rootfs";
         });
}

Error no_container(const std::string& path) {
  return Error(ErrorKind::not_found, "No such file or directory: " + path).with_code(ErrorCode::container_not_found);
}

/// As it is made: links that a container's programs may have put there lead nowhere.
bool is_layered(int directory) {
  const auto is = [&](const char* part, mode_t type) {
    struct stat status {};
    return fstatat(directory, part, &status, AT_SYMLINK_NOFOLLOW) == 0 && (status.st_mode & S_IFMT) == type;
  };
  return is(".situla", S_IFDIR) && is(".situla/upper", S_IFDIR) && is(".situla/work", S_IFDIR) &&
         is(".situla/image.sqsh", S_IFREG);
}

Result<NamedContainer> find_in(const PrivateDirectory& data, const std::string& name, OwnedBy owner) {
  auto directory = open_file_at(data.fd(), name, O_PATH | O_DIRECTORY);
  if (!directory) return fail(no_container(data.path(name)));
  if (owner == OwnedBy::user) TRY(check_owner(data, name));
  NamedContainer container{name, data.path(name)};
  container.directory = std::make_shared<const UniqueFd>(std::move(*directory));
  if (is_layered(container.directory->get()))
    container.kind = NamedContainer::Kind::layered;
  else if (is_scratch(container.directory->get(), name))
    return fail(no_container(data.path(name)));
  return container;
}

}  // namespace

Result<void> check_owner(const PrivateDirectory& data, const std::string& name) {
  struct stat status {};
  if (fstatat(data.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(status.st_mode)) return {};
  if (status.st_uid == geteuid() || status.st_uid == 0 || own_range_with(status.st_uid)) return {};
  return fail(Error(ErrorKind::denied, data.path(name) + " belongs to uid " + std::to_string(status.st_uid))
                  .with_code(ErrorCode::installation)
                  .with_hint("remove it, or make it your own (chown -R); an id that a container had of /etc/subuid, "
                             "/etc/subgid or id_ranges of situla.toml has to be yours on this node, too"));
}

std::string NamedContainer::held() const {
  return directory ? fd_path(directory->get()) : path;
}

Result<NamedContainer> reopen_container(const NamedContainer& container) {
  NamedContainer again = container;
  if (!container.directory) return again;
  TRY_ASSIGN(UniqueFd directory, open_file(container.path, O_PATH | O_DIRECTORY));
  struct stat before {
  }, now{};
  if (fstat(container.directory->get(), &before) != 0 || fstat(directory.get(), &now) != 0)
    return fail_errno(errno, "inspect " + container.path);
  // As long as the first one is open, its number belongs to it.
  if (before.st_dev != now.st_dev || before.st_ino != now.st_ino)
    return fail(Error(ErrorKind::not_found, container.path + " was replaced just now")
                    .with_code(ErrorCode::container_not_found));
  again.directory = std::make_shared<const UniqueFd>(std::move(directory));
  return again;
}

Result<PrivateDirectory> open_data_directory(const EnrootConfig& config) {
  return PrivateDirectory::open_or_make(config.data_path(), kSetting);
}

Result<std::string> container_path(const EnrootConfig& config, std::string_view name) {
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string_view::npos)
    return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(name))
                    .with_code(ErrorCode::container_name)
                    .with_hint("a container's name has no slash and does not begin with a dot"));
  return config.data_path() + "/" + std::string(name);
}

Result<NamedContainer> find_container(const EnrootConfig& config, std::string_view name, OwnedBy owner) {
  TRY_ASSIGN(const std::string path, container_path(config, name));
  const auto data = PrivateDirectory::open(config.data_path(), kSetting);
  if (!data && data.error().kind() == ErrorKind::not_found) return fail(no_container(path));
  if (!data) return fail(data.error());
  return find_in(*data, std::string(name), owner);
}

Result<std::vector<NamedContainer>> list_containers(const EnrootConfig& config, OwnedBy owner) {
  std::vector<NamedContainer> found;
  const auto data = PrivateDirectory::open(config.data_path(), kSetting);
  if (!data && data.error().kind() == ErrorKind::not_found) return found;
  if (!data) return fail(data.error());
  TRY_ASSIGN(std::vector<std::string> names, list_directory(data->fd(), data->path()));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (name.starts_with('.')) continue;
    auto container = find_in(*data, name, owner);
    if (!container) continue;
    container->directory.reset();  // there may be more of them than this process may have descriptors
    found.push_back(std::move(*container));
  }
  return found;
}

}  // namespace situla
