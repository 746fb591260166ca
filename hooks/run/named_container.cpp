#include "hooks/run/named_container.hpp"

#include <algorithm>
#include <filesystem>

#include <sys/stat.h>

#include "common/base/text.hpp"

namespace situla {
namespace {

NamedContainer describe(std::string name, std::string path) {
  NamedContainer container{std::move(name), std::move(path)};
  struct stat status {};
  if (lstat(container.image().c_str(), &status) == 0 && S_ISREG(status.st_mode))
    container.kind = NamedContainer::Kind::layered;
  return container;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

Result<std::string> container_path(const EnrootConfig& config, std::string_view name) {
  if (name.empty() || name.starts_with('.') || name.find('/') != std::string_view::npos)
    return fail(Error(ErrorKind::usage, "Invalid argument: " + printable(name))
                    .with_hint("a container's name has no slash and does not begin with a dot"));
  return config.data_path() + "/" + std::string(name);
}

Result<NamedContainer> find_container(const EnrootConfig& config, std::string_view name) {
  TRY_ASSIGN(std::string path, container_path(config, name));
  if (!is_directory(path)) return fail(ErrorKind::not_found, "No such file or directory: " + path);
  return describe(std::string(name), std::move(path));
}

Result<std::vector<NamedContainer>> list_containers(const EnrootConfig& config) {
  std::vector<NamedContainer> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(config.data_path(), error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    std::string path = it->path().string();
    if (!name.starts_with('.') && is_directory(path)) found.push_back(describe(std::move(name), std::move(path)));
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return fail_errno(error.value(), "read " + config.data_path());
  std::sort(found.begin(), found.end(),
            [](const NamedContainer& a, const NamedContainer& b) { return a.name < b.name; });
  return found;
}

}  // namespace situla
