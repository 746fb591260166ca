#include <algorithm>
#include <array>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/plugin_arguments.hpp"
#include "common/sys/directory.hpp"
#include "hooks/doctor/ask.hpp"
#include "hooks/doctor/checks.hpp"

namespace situla::doctor {
namespace {

constexpr const char* kPlugin = "spank_situla.so";

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

/// Where Slurm finds the plugin of a line; empty when nowhere.
std::string located(const Places& places, const SlurmFiles& files, const PluginLine& line) {
  if (line.path.find('/') != std::string::npos) return is_file(line.path) ? line.path : "";
  for (const std::string& directory : files.plugin_directories)
    if (is_file(directory + "/" + line.path)) return directory + "/" + line.path;
  // Slurm's own default directory is known to Slurm alone. Where its plugins lie beside ours, it is that one.
  return files.plugin_directories.empty() && is_file(places.plugin) ? places.plugin : "";
}

/// Whether the directory holds plugins of Slurm's own.
bool is_slurms(const std::filesystem::path& directory) {
  const auto names = list_directory(directory.string());
  return names && std::any_of(names->begin(), names->end(), [](const std::string& name) {
           return name.starts_with("select_") && name.ends_with(".so");
         });
}

/// Of the program `name`, or nullopt without it.
std::optional<SlurmVersion> version_of(const std::string& name, const char* option, const Environment& environment) {
  const auto program = find_program(name, environment);
  if (!program) return std::nullopt;
  const auto text = ask({*program, {option}}, environment.strings());
  if (!text) return std::nullopt;
  const auto version = parse_slurm_version(*text);
  return version ? std::optional(*version) : std::nullopt;
}

/// What stands behind the plugin's name, of all lines that load it; points into them.
std::vector<const char*> arguments_of(const std::vector<PluginLine>& ours) {
  std::vector<const char*> words;
  for (const PluginLine& line : ours)
    for (const std::string& word : line.arguments) words.push_back(word.c_str());
  return words;
}

Check plugstack(State state, std::string found, std::string fix) {
  return {"plugstack", state, std::move(found), std::move(fix)};
}

Check missing_line(const Places& places, const SlurmFiles& files) {
  const std::string& file = files.plugstack;
  // What slurmd has fetched is replaced the next time.
  if (files.from == "configless")
    return plugstack(State::fail,
                     file + (files.plugstack_exists ? " does not load " + std::string(kPlugin)
                                                    : " does not exist: Slurm loads no plugin"),
                     "add the line to plugstack.conf of the controller: include /etc/slurm/plugstack.conf.d/*.conf; "
                     "then: scontrol reconfigure");
  if (!files.plugstack_exists)
    return plugstack(State::fail, file + " does not exist: Slurm loads no plugin",
                     "make it with the line: required " + places.plugin);
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / "plugstack.conf.d";
  const std::string snippet = (beside / "situla.conf").string(), unloaded = file + " does not load " + kPlugin;
  if (is_file(snippet))
    return plugstack(State::fail, unloaded + ", and does not include " + snippet,
                     "add the line to " + file + ": include " + beside.string() + "/*.conf");
  return plugstack(State::fail, unloaded, "add the line to " + file + ": required " + places.plugin);
}

}  // namespace

std::string plugin_that_loads(const Places& places, const SlurmFiles& files) {
  const std::vector<PluginLine> ours = files.loading(kPlugin);
  const std::string path = ours.empty() ? "" : located(places, files, ours.front());
  return path.empty() ? places.plugin : path;
}

Check check_slurm_plugin(const Places& places) {
  struct stat status {};
  if (stat(places.plugin.c_str(), &status) != 0)
    return {"slurm-plugin", State::fail, places.plugin + " is missing",
            "install the package situla-slurm-plugin for this Slurm, or build Situla with Slurm's headers"};
  const std::string directory = std::filesystem::path(places.plugin).parent_path().string();
  for (const std::string& path : {places.plugin, directory}) {
    if (stat(path.c_str(), &status) != 0) continue;
    if (status.st_uid != 0)
      return {"slurm-plugin", State::fail, path + " belongs to uid " + std::to_string(status.st_uid) + ", not to root",
              "chown root: " + shell_quote(path)};
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
      return {"slurm-plugin", State::fail, path + " can be written by others than root",
              "chmod go-w " + shell_quote(path)};
  }
  return {"slurm-plugin", State::ok, places.plugin, ""};
}

Check check_slurm_version(const Places& places, const Environment& environment) {
  const auto built = version_built_for(places.plugin);
  std::vector<std::string> found;
  std::optional<SlurmVersion> other, any;
  for (const auto& [name, option] : {std::pair("srun", "--version"), std::pair("slurmd", "-V")}) {
    const auto version = version_of(name, option, environment);
    if (!version) continue;
    found.push_back(std::string(name) + " " + version->text());
    any = version;
    if (built && !built->fits(*version)) other = version;
  }
  Check check{"slurm-version", State::ok, join(found, ", "), ""};
  if (found.empty()) return {"slurm-version", State::info, "neither srun nor slurmd is in PATH", ""};
  if (!built) {
    // That it is missing has a line of its own.
    if (is_file(places.plugin)) {
      check.state = State::fail;
      check.found += "; " + built.error().message();
      check.fix = "install the package situla-slurm-plugin for Slurm " + any->release() + " again";
    }
    return check;
  }
  check.found += "; the plugin is for " + built->release();
  check.facts = {{"slurm", any->text()}, {"plugin", built->release()}};
  if (other) {
    check.state = State::fail;
    check.fix = "install the package situla-slurm-plugin that was built for Slurm " + other->release() +
                "; Slurm does not load another";
  }
  return check;
}

Check check_plugstack(const Places& places, const SlurmFiles& files) {
  const std::vector<PluginLine> ours = files.loading(kPlugin);
  if (!files.unreadable.empty())
    return plugstack(State::fail, files.unreadable.front(), "fix what " + files.plugstack + " names");
  if (ours.empty()) return missing_line(places, files);
  if (const auto pyxis = files.loading("spank_pyxis.so"); !pyxis.empty())
    return plugstack(State::fail, pyxis.front().file + " loads pyxis as well; both define --container-image",
                     "remove the line of spank_pyxis.so from " + pyxis.front().file);
  const PluginLine& line = ours.front();
  if (ours.size() > 1)
    return plugstack(State::fail, line.file + " and " + ours[1].file + " both load " + kPlugin,
                     "remove one of the lines");
  if (line.rule != "required" && line.rule != "optional")
    return plugstack(State::fail, line.file + ": \"" + line.rule + "\" is no word of plugstack.conf",
                     "write: required " + line.path);
  const std::string path = located(places, files, line);
  if (path.empty())
    return plugstack(State::fail, line.file + ": " + line.path + " is not there",
                     "write the plugin's path: " + line.rule + " " + places.plugin);
  if (line.path.find('/') == std::string::npos && files.plugin_directories.empty() &&
      !is_slurms(std::filesystem::path(path).parent_path()))
    return plugstack(State::warn,
                     line.file + ": " + line.path + " has no path, and no plugin of Slurm's lies beside " + path,
                     "write the path: " + line.rule + " " + path);
  std::string found = line.file + ": " + line.rule + " " + path;
  if (line.rule == "optional") found += " (where it cannot be loaded, jobs run without it)";
  if (!files.from.empty()) found += "; found by " + files.from;
  return plugstack(State::ok, found, "");
}

Check check_plugin_arguments(const SlurmFiles& files) {
  const std::vector<PluginLine> ours = files.loading(kPlugin);
  const std::vector<const char*> words = arguments_of(ours);
  const auto parsed = PluginConfig::parse(words);
  if (!parsed)
    return check_of("plugin-arguments", State::fail, parsed.error(), "correct the line in " + ours.front().file);
  if (!parsed->importer.empty() && access(parsed->importer.c_str(), X_OK) != 0)
    return {"plugin-arguments", State::warn, "importer=" + parsed->importer + " is not there or cannot be run",
            "correct importer= in " + ours.front().file + ", or take it out"};
  return {"plugin-arguments", State::ok,
          words.empty() ? "none" : join(std::vector<std::string>(words.begin(), words.end()), " "), ""};
}

Check check_prolog(const SlurmFiles& files) {
  // slurm.conf(5): these set Alloc, too.
  constexpr std::array<std::string_view, 6> kAtStart = {"alloc",   "contain", "x11", "deferbatch", "forcerequeueonfail",
                                                        "runinjob"};
  const auto parsed = PluginConfig::parse(arguments_of(files.loading(kPlugin)));
  if (parsed && (parsed->prolog_prefetch == PrologPrefetch::none || !parsed->importer.empty()))
    return {"early-images", State::info, "none: steps fetch their images", ""};
  const std::string flags = to_lower(files.prolog_flags);
  const auto names = split_nonempty(flags, ',');
  const bool at_start = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return std::find(kAtStart.begin(), kAtStart.end(), trim(name)) != kAtStart.end();
  });
  return {"early-images", State::info,
          at_start ? "fetched on all nodes of a job when it starts"
                   : "fetched on a job's first node when it starts, on others with their first step; "
                     "with PrologFlags=Alloc in slurm.conf on all",
          ""};
}

Check check_job_comment(const Places& places, const SiteConfig& config, const Environment& environment) {
  constexpr const char* kName = "job-comment";
  std::vector<std::string> missing;
  for (const char* command : {"squeue", "scontrol"})
    if (!find_program(command, environment)) missing.emplace_back(command);
  if (const std::string recorder = places.libexec + "/situla-recorder"; access(recorder.c_str(), X_OK) != 0)
    missing.push_back(recorder);
  if (missing.empty()) return {kName, State::ok, std::string(to_string(config.job_comment)), ""};
  return {kName, State::warn, "nothing is written into it: missing: " + join(missing, ", "),
          "install Slurm's commands and Situla's programs, or set job_comment = \"off\" in situla.toml"};
}

bool plugstack_wants_fuse(const SlurmFiles& files) {
  const std::vector<PluginLine> ours = files.loading(kPlugin);
  const auto parsed = PluginConfig::parse(arguments_of(ours));
  return parsed && parsed->use_squashfuse;
}

}  // namespace situla::doctor
