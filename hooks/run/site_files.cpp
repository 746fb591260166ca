#include "hooks/run/site_files.hpp"

#include <algorithm>

#include "common/base/text.hpp"
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

/// Does a line of these mount something on /proc? Every set of standard mounts does.
bool mounts_proc(const std::vector<SiteFile>& files) {
  for (const SiteFile& file : files)
    for (const std::string_view line : split(file.text, '\n')) {
      const std::vector<std::string_view> words = split_words(line.substr(0, line.find('#')));
      if (!words.empty() && words[words.size() == 1 ? 0 : 1] == "/proc") return true;
    }
  return false;
}

Result<std::vector<SiteFile>> collect(const EnrootConfig& config, const std::string& directory, std::string_view suffix,
                                      std::vector<SiteFile> built_in, bool (*complete)(const std::vector<SiteFile>&)) {
  std::vector<SiteFile> files;
  if (auto system = read_directory(config.sysconf_path() + "/" + directory, suffix)) {
    files = std::move(*system);
    // Somebody put his own lines there and takes the standard ones for granted. An empty directory switches them off.
    if (!files.empty() && !complete(files)) files.insert(files.begin(), built_in.begin(), built_in.end());
  } else if (system.error().kind() == ErrorKind::not_found) {
    files = std::move(built_in);
  } else {
    return system;
  }
  auto user = read_directory(config.config_path() + "/" + directory, suffix);
  if (!user && user.error().kind() != ErrorKind::not_found) return user;
  if (user) files.insert(files.end(), std::make_move_iterator(user->begin()), std::make_move_iterator(user->end()));
  return files;
}

}  // namespace

Result<std::vector<SiteFile>> mount_files(const EnrootConfig& config) {
  return collect(config, "mounts.d", ".fstab",
                 {{"built-in 10-system.fstab", std::string(builtin::kSystemFstab)},
                  {"built-in 20-config.fstab", std::string(builtin::kConfigFstab)}},
                 mounts_proc);
}

Result<std::vector<SiteFile>> environment_files(const EnrootConfig& config) {
  return collect(config, "environ.d", ".env",
                 {{"built-in 10-terminal.env", std::string(builtin::kTerminalEnvironment)}},
                 [](const std::vector<SiteFile>&) { return true; });
}

}  // namespace situla
