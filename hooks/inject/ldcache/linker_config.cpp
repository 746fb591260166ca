#include "hooks/inject/ldcache/linker_config.hpp"

#include <algorithm>
#include <array>

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"

namespace situla {
namespace {

constexpr size_t kMaxConfig = size_t{64} << 10U;
constexpr size_t kMaxIncludes = 256, kMaxDirectories = 1024;
constexpr std::string_view kConfig = "/etc/ld.so.conf";
constexpr std::string_view kConfigDirectory = "/etc/ld.so.conf.d";
constexpr std::string_view kOurs = "/etc/ld.so.conf.d/00-situla.conf";
// '-' comes before '.': what is preferred comes first.
constexpr std::string_view kOurPreferred = "/etc/ld.so.conf.d/00-situla-compat.conf";
constexpr mode_t kConfigMode = 0644;

#if defined(__x86_64__)
constexpr std::string_view kMuslName = "x86_64", kGlibcLinker = "/lib64/ld-linux-x86-64.so.2";
#elif defined(__aarch64__)
constexpr std::string_view kMuslName = "aarch64", kGlibcLinker = "/lib/ld-linux-aarch64.so.1";
#elif defined(__powerpc64__)
constexpr std::string_view kMuslName = "powerpc64le", kGlibcLinker = "/lib64/ld64.so.2";
#else
#error "what are the dynamic linkers of this processor called?"
#endif

std::string without_slash(std::string_view directory) {
  while (directory.size() > 1 && directory.ends_with('/')) directory.remove_suffix(1);
  return std::string(directory);
}

/// Reads a configuration file and what it includes; files that are not there or no text say nothing, as for ldconfig.
class ConfigReader {
 public:
  explicit ConfigReader(const RootDir& root) : root_(root) {}

  std::vector<std::string> read(std::string_view path) {
    read_file(std::string(path));
    return std::move(directories_);
  }

 private:
  void read_file(const std::string& path) {
    if (path == kOurs || path == kOurPreferred) return;
    const auto text = root_.read_file(path, kMaxConfig);
    if (!text) return;
    for (std::string_view line : split(*text, '\n')) {
      line = trim(line.substr(0, line.find('#')));
      const auto words = split_words(line);
      if (words.empty() || words[0] == "hwcap") continue;
      if (words[0] == "include") {
        for (size_t i = 1; i < words.size(); ++i) include(words[i], path);
      } else if (line.starts_with('/') && directories_.size() < kMaxDirectories) {
        add_once(directories_, without_slash(trim(line.substr(0, line.find('=')))));
      }
    }
  }

  void include(std::string_view pattern, const std::string& from) {
    // What ends files that include themselves.
    if (++includes_ > kMaxIncludes) return;
    const std::string whole =
        pattern.starts_with('/') ? std::string(pattern) : from.substr(0, from.rfind('/') + 1) + std::string(pattern);
    const std::string directory = whole.substr(0, whole.rfind('/') + 1), last = whole.substr(whole.rfind('/') + 1);
    const auto opened = root_.open_at(directory, O_RDONLY | O_DIRECTORY);
    if (!opened) return;
    auto names = list_directory(opened->get(), directory);
    if (!names) return;
    std::sort(names->begin(), names->end());
    for (const std::string& name : *names)
      if (fnmatch(last.c_str(), name.c_str(), FNM_PERIOD) == 0) read_file(directory + name);
  }

  const RootDir& root_;
  size_t includes_ = 0;
  std::vector<std::string> directories_;
};

/// The lines as the file's content; no line, no file.
Result<void> write_config(const RootDir& root, std::string_view path, const std::vector<std::string>& lines) {
  const auto before = root.read_file(path, kMaxConfig);
  if (lines.empty()) {
    if (!before) return {};
    TRY_ASSIGN(const UniqueFd directory, root.resolve(kConfigDirectory));
    const std::string name(path.substr(kConfigDirectory.size() + 1));
    if (unlinkat(directory.get(), name.c_str(), 0) != 0 && errno != ENOENT)
      return fail_errno(errno, "remove " + std::string(path) + " from the root file system");
    return {};
  }
  const std::string text = "# Written by Situla: libraries of the host.\n" + join(lines, "\n") + "\n";
  if (before && *before == text) return {};
  TRY(root.make_directories(kConfigDirectory, 0755));
  return root.write_file(path, text, kConfigMode);
}

bool has_glibc(const RootDir& root) {
  return root.exists(kGlibcLinker) || root.exists("/etc/ld.so.cache");
}

}  // namespace

std::vector<Linker> linkers_of(const RootDir& root) {
  const bool musl = root.exists("/lib/ld-musl-" + std::string(kMuslName) + ".so.1");
  if (!musl) return {Linker::glibc};
  if (has_glibc(root)) return {Linker::glibc, Linker::musl};
  return {Linker::musl};
}

bool is_searched_by_default(std::string_view directory) {
  constexpr std::array<std::string_view, 8> kDefault = {"/lib",
                                                        "/usr/lib",
                                                        "/lib64",
                                                        "/usr/lib64",
                                                        "/lib/x86_64-linux-gnu",
                                                        "/usr/lib/x86_64-linux-gnu",
                                                        "/lib/aarch64-linux-gnu",
                                                        "/usr/lib/aarch64-linux-gnu"};
  return std::find(kDefault.begin(), kDefault.end(), directory) != kDefault.end();
}

std::vector<std::string> configured_directories(const RootDir& root) {
  return ConfigReader(root).read(kConfig);
}

std::vector<std::string> earlier_preferred(const RootDir& root) {
  std::vector<std::string> directories;
  const auto text = root.read_file(kOurPreferred, kMaxConfig);
  if (!text) return directories;
  for (const std::string_view line : split_nonempty(*text, '\n'))
    if (line.starts_with('/')) directories.emplace_back(line);
  return directories;
}

Result<void> configure_directories(const RootDir& root, const std::vector<std::string>& preferred,
                                   const std::vector<std::string>& directories) {
  // ldconfig itself looks into these, whatever the configuration; Debian's has no lib64.
  std::vector<std::string> known = configured_directories(root);
  known.insert(known.end(), {"/lib", "/usr/lib"});
  if (!root.exists("/etc/debian_version")) known.insert(known.end(), {"/lib64", "/usr/lib64"});
  std::vector<std::string> unknown;
  for (const std::string& directory : directories)
    if (std::find(known.begin(), known.end(), directory) == known.end()) add_once(unknown, directory);
  TRY(write_config(root, kOurPreferred, preferred));
  TRY(write_config(root, kOurs, unknown));
  if ((preferred.empty() && unknown.empty()) || root.exists(kConfig)) return {};
  return root.write_file(kConfig, "include " + std::string(kConfigDirectory) + "/*.conf\n", kConfigMode);
}

std::optional<std::string> musl_path(const RootDir& root, const std::vector<std::string>& preferred,
                                     const std::vector<std::string>& directories, std::string& path) {
  path = "/etc/ld-musl-" + std::string(kMuslName) + ".path";
  const auto before = root.read_file(path, kMaxConfig);
  const std::string all = before ? *before : "/lib:/usr/local/lib:/usr/lib";  // what musl does without the file
  std::vector<std::string> now;
  for (const std::string_view line : split_nonempty(all, '\n'))
    for (const std::string_view directory : split_nonempty(line, ':')) now.emplace_back(directory);
  std::vector<std::string> wanted = preferred;
  for (const std::string& directory : now) add_once(wanted, directory);
  for (const std::string& directory : directories) add_once(wanted, directory);
  if (before && wanted == now) return std::nullopt;
  return join(wanted, "\n") + "\n";
}

}  // namespace situla
