#include "hooks/doctor/slurm_files.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/doctor/report.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"

namespace situla::doctor {
namespace {

constexpr int kDeepestInclude = 8;   ///< Slurm itself ends somewhere, too
constexpr size_t kMostFiles = 1000;  ///< of files that include each other

struct Line {
  std::string file, text;
};

/// As Slurm expands it: glob(7), and names without a slash in front lie beside the file that includes them.
std::vector<std::string> matching(const std::string& file, std::string_view word) {
  std::filesystem::path pattern(word);
  if (pattern.is_relative()) pattern = std::filesystem::path(file).parent_path() / pattern;
  glob_t found{};
  const ScopeExit release([&] { globfree(&found); });
  if (glob(pattern.c_str(), 0, nullptr, &found) != 0)
    return word.find_first_of("*?[") == std::string_view::npos ? std::vector<std::string>{pattern.string()}
                                                               : std::vector<std::string>{};
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

/// The lines of a file of Slurm's and of what it includes, without comments.
struct Reading {
  std::vector<Line> lines;
  std::vector<std::string> unreadable;
  size_t files = 0;

  void add(const std::string& file, int depth = 0) {
    if (++files > kMostFiles) return;
    const Result<std::string> content = read_file(file);
    if (!content) return complain(content.error().message());
    if (depth > kDeepestInclude) return complain(file + ": included too deep");
    for (std::string_view line : split(*content, '\n')) {
      line = trim(line.substr(0, line.find('#')));
      if (line.empty()) continue;
      const std::vector<std::string_view> words = split_words(line);
      if (words.size() == 2 && to_lower(words[0]) == "include") {
        for (const std::string& included : matching(file, words[1])) add(included, depth + 1);
      } else {
        lines.push_back({file, std::string(line)});
      }
    }
    if (depth == 0 && files > kMostFiles)
      complain(file + ": more than " + std::to_string(kMostFiles) + " files are included");
  }

 private:
  void complain(const std::string& what) {
    if (std::find(unreadable.begin(), unreadable.end(), what) == unreadable.end()) unreadable.push_back(what);
  }
};

/// KEY=VALUE of slurm.conf; the last one counts.
std::string setting(const std::vector<Line>& lines, std::string_view wanted) {
  std::string value;
  for (const Line& line : lines) {
    const auto parts = cut(line.text, '=');
    if (parts && to_lower(trim(parts->first)) == wanted) value = trim(parts->second);
  }
  return value;
}

/// Anybody may call his program slurmd, even one that gets root's id (a link to sudo), and root would read the files
/// that it names.
bool is_slurmd(const std::string& process) {
  const auto comm = read_file(process + "/comm", 64);
  struct stat status {};
  if (!comm || trim(*comm) != "slurmd" || stat(process.c_str(), &status) != 0) return false;
  if (status.st_uid != 0 && status.st_uid != geteuid()) return false;
  // Who may not look is not root.
  std::error_code hidden;
  const std::filesystem::path program = std::filesystem::read_symlink(process + "/exe", hidden);
  return hidden || program.filename().string().starts_with("slurmd");
}

/// FILE of `slurmd -f FILE`, when one runs here.
std::string told_to_slurmd(const std::string& proc) {
  const auto names = list_directory(proc);
  if (!names) return "";
  for (const std::string& name : *names) {
    if (!parse_unsigned(name)) continue;
    const std::string process = (proc + "/").append(name);
    if (!is_slurmd(process)) continue;
    const auto command = read_file(process + "/cmdline", size_t{64} << 10U);
    if (!command) continue;
    const std::vector<std::string_view> words = split(*command, '\0');
    for (size_t i = 1; i + 1 < words.size(); ++i)
      if (words[i] == "-f") return std::string(words[i + 1]);
  }
  return "";
}

void choose_slurm_conf(SlurmFiles& files, const Places& places, const Environment& environment) {
  if (!places.slurm_conf.empty()) {
    if (access(places.slurm_conf.c_str(), F_OK) == 0) files.slurm_conf = places.slurm_conf;
    return;
  }
  // What these two name is what Slurm insists on, whether it exists or not.
  if (files.slurm_conf = environment.get_or("SLURM_CONF", ""); !files.slurm_conf.empty()) {
    files.from = "SLURM_CONF";
    return;
  }
  if (files.slurm_conf = told_to_slurmd(places.proc); !files.slurm_conf.empty()) {
    files.from = "slurmd -f";
    return;
  }
  const std::array<std::pair<std::string, std::string>, 4> usual = {
      {{places.etc + "/slurm/slurm.conf", ""},
       {places.run + "/slurm/conf/slurm.conf", "configless"},
       {places.etc + "/slurm-llnl/slurm.conf", ""},
       {"/usr/local/etc/slurm.conf", ""}}};
  for (const auto& [path, from] : usual) {
    if (access(path.c_str(), F_OK) != 0) continue;
    files.slurm_conf = path;
    files.from = from;
    return;
  }
}

PluginLine plugin_line(const Line& line) {
  const std::vector<std::string_view> words = split_words(line.text);
  PluginLine plugin;
  plugin.file = line.file;
  plugin.rule = to_lower(words[0]);
  if (words.size() > 1) plugin.path = words[1];
  for (size_t i = 2; i < words.size(); ++i) plugin.arguments.emplace_back(words[i]);
  return plugin;
}

}  // namespace

SlurmFiles SlurmFiles::find(const Places& places, const Environment& environment) {
  SlurmFiles files;
  choose_slurm_conf(files, places, environment);
  if (files.slurm_conf.empty()) return files;
  Reading settings;
  settings.add(files.slurm_conf);
  files.unreadable = std::move(settings.unreadable);
  files.prolog_flags = setting(settings.lines, "prologflags");
  files.proctrack = setting(settings.lines, "proctracktype");
  const std::string directories = setting(settings.lines, "plugindir");
  for (const std::string_view directory : split_nonempty(directories, ':'))
    files.plugin_directories.emplace_back(directory);
  files.one_address =
      to_lower(setting(settings.lines, "communicationparameters")).find("noinaddrany") != std::string::npos;
  files.bcast_addresses = std::any_of(settings.lines.begin(), settings.lines.end(), [](const Line& line) {
    const std::string text = to_lower(line.text);
    return text.starts_with("nodename") && text.find("bcastaddr=") != std::string::npos;
  });
  std::filesystem::path plugstack = setting(settings.lines, "plugstackconfig");
  if (plugstack.empty()) plugstack = "plugstack.conf";
  if (plugstack.is_relative()) plugstack = std::filesystem::path(files.slurm_conf).parent_path() / plugstack;
  files.plugstack = plugstack.string();
  files.plugstack_exists = access(plugstack.c_str(), F_OK) == 0;
  if (!files.plugstack_exists) return files;
  Reading plugins;
  plugins.add(files.plugstack);
  files.unreadable.insert(files.unreadable.end(), plugins.unreadable.begin(), plugins.unreadable.end());
  std::transform(plugins.lines.begin(), plugins.lines.end(), std::back_inserter(files.lines), plugin_line);
  return files;
}

std::vector<PluginLine> SlurmFiles::loading(const std::string& plugin) const {
  std::vector<PluginLine> found;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
               [&](const PluginLine& line) { return std::filesystem::path(line.path).filename() == plugin; });
  return found;
}

std::string SlurmVersion::release() const {
  return std::to_string(major) + "." + (minor < 10 ? "0" : "") + std::to_string(minor);
}

std::string SlurmVersion::text() const {
  return release() + "." + std::to_string(patch);
}

Result<SlurmVersion> version_built_for(const std::string& plugin) {
  TRY_ASSIGN(const UniqueFd file, open_file(plugin, O_RDONLY | O_NONBLOCK));
  const auto bytes = ElfFile::read_object(file.get(), "plugin_version", sizeof(uint32_t));
  if (!bytes) return fail(ErrorKind::corrupt, plugin + " is not a plugin of Slurm's");
  uint32_t number = 0;
  std::memcpy(&number, bytes->data(), sizeof number);
  return SlurmVersion{number >> 16U & 0xffU, number >> 8U & 0xffU, number & 0xffU};
}

Result<SlurmVersion> parse_slurm_version(std::string_view text) {
  const std::vector<std::string_view> words = split_words(text);
  const std::vector<std::string_view> numbers =
      words.size() < 2 ? std::vector<std::string_view>{} : split(words[1], '.');
  const auto number = [&](size_t index) -> std::optional<uint64_t> {
    if (index >= numbers.size()) return std::nullopt;
    return parse_unsigned(numbers[index].substr(0, numbers[index].find_first_not_of("0123456789")));
  };
  const auto major = number(0);
  const auto minor = number(1);
  if (!major || !minor || *major > 255 || *minor > 255)
    return fail(ErrorKind::corrupt, "no version of Slurm: " + printable(text.substr(0, 80)));
  return SlurmVersion{static_cast<uint32_t>(*major), static_cast<uint32_t>(*minor),
                      static_cast<uint32_t>(number(2).value_or(0))};
}

}  // namespace situla::doctor
