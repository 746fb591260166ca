#include "hooks/scripts/site_files.hpp"

#include <algorithm>
#include <filesystem>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/scripts/builtin_files.hpp"

namespace situla {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20U;

/// Files with the suffix in a directory that may be missing, in the order of their names.
Result<std::vector<SiteFile>> read_files(const std::string& directory, std::string_view suffix) {
  TRY_ASSIGN(const std::vector<std::string> names, names_with_suffix(directory, suffix));
  std::vector<SiteFile> files;
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    TRY_ASSIGN(std::string text, read_file(path, kMaxBytes));
    files.push_back({path, std::move(text)});
  }
  return files;
}

std::string file_name(const SiteFile& file) {
  return std::filesystem::path(file.path).filename();
}

/// Does a line of these mount something on /proc? Every whole set of standard mounts has one.
bool mounts_proc(const std::vector<SiteFile>& files) {
  for (const SiteFile& file : files)
    for (const std::string_view line : split(file.text, '\n')) {
      const std::vector<std::string_view> words = split_words(line);
      if (words.empty() || words[0].starts_with('#')) continue;
      if (words[words.size() == 1 ? 0 : 1] == "/proc") return true;
    }
  return false;
}

/// The built-in files hold as if they lay in the site's directory: a file of the same name takes their place.
void put_built_in(std::vector<SiteFile> built_in, std::vector<SiteFile>& files) {
  const auto replaced = [&](const SiteFile& standard) {
    return std::any_of(files.begin(), files.end(),
                       [&](const SiteFile& own) { return file_name(own) == file_name(standard); });
  };
  std::erase_if(built_in, replaced);
  files.insert(files.end(), std::make_move_iterator(built_in.begin()), std::make_move_iterator(built_in.end()));
  std::sort(files.begin(), files.end(),
            [](const SiteFile& a, const SiteFile& b) { return file_name(a) < file_name(b); });
}

Result<void> add_users(const EnrootConfig& config, const std::string& directory, std::string_view suffix,
                       std::vector<SiteFile>& files) {
  TRY_ASSIGN(std::vector<SiteFile> own, read_files(config.config_path() + "/" + directory, suffix));
  files.insert(files.end(), std::make_move_iterator(own.begin()), std::make_move_iterator(own.end()));
  return {};
}

}  // namespace

Result<std::vector<SiteFile>> mount_files(const EnrootConfig& config) {
  TRY_ASSIGN(std::vector<SiteFile> files, read_files(config.sysconf_path() + "/mounts.d", ".fstab"));
  if (!mounts_proc(files))
    put_built_in({{"built-in/10-system.fstab", std::string(builtin::kSystemFstab)},
                  {"built-in/20-config.fstab", std::string(builtin::kConfigFstab)}},
                 files);
  TRY(add_users(config, "mounts.d", ".fstab", files));
  return files;
}

Result<std::vector<SiteFile>> environment_files(const EnrootConfig& config) {
  TRY_ASSIGN(std::vector<SiteFile> files, read_files(config.sysconf_path() + "/environ.d", ".env"));
  put_built_in({{"built-in/10-terminal.env", std::string(builtin::kTerminalEnvironment)}}, files);
  TRY(add_users(config, "environ.d", ".env", files));
  return files;
}

}  // namespace situla
