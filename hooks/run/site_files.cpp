#include "hooks/run/site_files.hpp"

#include <algorithm>
#include <filesystem>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/run/builtin_files.hpp"

namespace situla {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20U;

/// Files with the suffix in a directory, in the order of their names; hidden ones are skipped, as a shell's glob does.
/// ErrorKind::not_found when the directory does not exist.
Result<std::vector<SiteFile>> read_directory(const std::string& directory, std::string_view suffix) {
  TRY_ASSIGN(std::vector<std::string> names, list_directory(directory));
  std::sort(names.begin(), names.end());
  std::vector<SiteFile> files;
  for (const std::string& name : names) {
    if (!name.ends_with(suffix) || name.starts_with('.')) continue;
    const std::string path = directory + "/" + name;
    TRY_ASSIGN(std::string text, read_file(path, kMaxBytes));
    files.push_back({path, std::move(text)});
  }
  return files;
}

std::string file_name(const SiteFile& file) {
  return std::filesystem::path(file.path).filename();
}

/// The built-in files hold as if they lay in the site's directory: a file of the same name takes their place.
Result<std::vector<SiteFile>> collect(const EnrootConfig& config, const std::string& directory, std::string_view suffix,
                                      std::vector<SiteFile> files) {
  auto system = read_directory(config.sysconf_path() + "/" + directory, suffix);
  if (!system && system.error().kind() != ErrorKind::not_found) return system;
  if (system) {
    for (SiteFile& own : *system) {
      std::erase_if(files, [&](const SiteFile& built_in) { return file_name(built_in) == file_name(own); });
      files.push_back(std::move(own));
    }
    std::sort(files.begin(), files.end(),
              [](const SiteFile& a, const SiteFile& b) { return file_name(a) < file_name(b); });
  }
  auto user = read_directory(config.config_path() + "/" + directory, suffix);
  if (!user && user.error().kind() != ErrorKind::not_found) return user;
  if (user) files.insert(files.end(), std::make_move_iterator(user->begin()), std::make_move_iterator(user->end()));
  return files;
}

}  // namespace

Result<std::vector<SiteFile>> mount_files(const EnrootConfig& config) {
  return collect(config, "mounts.d", ".fstab",
                 {{"built-in/10-system.fstab", std::string(builtin::kSystemFstab)},
                  {"built-in/20-config.fstab", std::string(builtin::kConfigFstab)}});
}

Result<std::vector<SiteFile>> environment_files(const EnrootConfig& config) {
  return collect(config, "environ.d", ".env",
                 {{"built-in/10-terminal.env", std::string(builtin::kTerminalEnvironment)}});
}

}  // namespace situla
