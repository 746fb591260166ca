#include "hooks/slurm/host_command.hpp"

#include <algorithm>
#include <array>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/environment.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "hooks/slurm/command_line.hpp"
#include "hooks/slurm/nested.hpp"

namespace situla {
namespace {

using slurm_line::Request;

enum class Meaning {
  read,       ///< the container's file
  read_list,  ///< the same, if the value has a '/'; else it is no path
  written,    ///< a file of the host's, which need not be there
  place,      ///< a directory of the host's
};
struct PathOption {
  std::string_view command, option;
  Meaning meaning;
};
constexpr std::array kPathOptions = std::to_array<PathOption>({
    {"srun", "output", Meaning::written},      {"srun", "error", Meaning::written},
    {"srun", "input", Meaning::read},          {"srun", "bbf", Meaning::read},
    {"srun", "nodefile", Meaning::read},       {"srun", "nodelist", Meaning::read_list},
    {"srun", "exclude", Meaning::read_list},   {"srun", "prolog", Meaning::written},
    {"srun", "epilog", Meaning::written},      {"srun", "chdir", Meaning::place},
    {"srun", "container", Meaning::place},     {"sbatch", "output", Meaning::written},
    {"sbatch", "error", Meaning::written},     {"sbatch", "input", Meaning::written},
    {"sbatch", "bbf", Meaning::read},          {"sbatch", "export-file", Meaning::read},
    {"sbatch", "nodefile", Meaning::read},     {"sbatch", "nodelist", Meaning::read_list},
    {"sbatch", "exclude", Meaning::read_list}, {"sbatch", "chdir", Meaning::place},
    {"sbatch", "container", Meaning::place},   {"salloc", "bbf", Meaning::read},
    {"salloc", "nodefile", Meaning::read},     {"salloc", "nodelist", Meaning::read_list},
    {"salloc", "exclude", Meaning::read_list}, {"salloc", "container", Meaning::place},
});

constexpr size_t kMostScript = size_t{256} << 10U;

Error only_inside(const std::string& what, const std::string& directory,
                  const char* hint = "take a directory that is mounted from the host (--container-mounts)") {
  return Error(ErrorKind::usage,
               what + ": " + printable(directory) + " is in the container alone, and Slurm writes on the host")
      .with_code(ErrorCode::option)
      .with_hint(hint);
}

/// Words of srun's in the place of a file: which tasks.
bool is_no_file(const std::string& value) {
  // Devices are the same everywhere. Other files below /dev are not.
  constexpr std::array<std::string_view, 7> kDevices = {"/dev/null",  "/dev/zero",   "/dev/full",  "/dev/tty",
                                                        "/dev/stdin", "/dev/stdout", "/dev/stderr"};
  const std::string word = to_lower(value);
  return word == "none" || word == "all" || word.starts_with('-') || parse_unsigned(word).has_value() ||
         word.starts_with("/dev/pts/") || std::find(kDevices.begin(), kDevices.end(), word) != kDevices.end();
}

std::string absolute(const std::string& path, const std::string& directory) {
  return path.starts_with('/') ? path : directory + (directory.ends_with('/') ? "" : "/") + path;
}

/// Whether a line #SBATCH of a script has an option, short or long.
bool says(std::string_view script, std::string_view letter, std::string_view name) {
  for (const std::string_view text : split(script, '\n'))
    if (text.starts_with("#SBATCH"))
      for (const std::string_view word : split_words(text))
        if (word.starts_with(letter) || word.starts_with(name)) return true;
  return false;
}

/// The beginning of a script, where its options are; empty for what is no regular file.
std::string beginning_of(const UniqueFd& file) {
  std::string text(kMostScript, '\0');
  struct stat status {};
  const ssize_t size =
      fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) ? pread(file.get(), text.data(), text.size(), 0) : 0;
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

class Translation {
 public:
  Translation(const Request& request, const ContainerFiles& container, const TypedIn& where)
      : request_(request),
        container_(container),
        where_(where),
        line_(parse_command_line(request.command, request.arguments)),
        environment_(Environment::from_strings(request.environment)) {}

  Result<HostCommand> make() {
    // One that has been removed is nowhere, and no matter for most.
    const auto here = container_.host_path(".");
    if (!here && here.error().kind() == ErrorKind::cancelled) return fail(here.error());
    made_.directory = here ? here->value_or("") : "";
    // srun looks for it among the words of the program, too.
    const auto& rest = line_.rest;
    const bool has_parts = request_.command == "srun" ? std::find(rest.begin(), rest.end(), ":") != rest.end()
                                                      : !rest.empty() && rest.front() == ":";
    if (request_.command != "sbcast" && takes_options() && has_parts)
      return fail(Error(ErrorKind::unsupported, "the parts of a heterogeneous job cannot be named in a container")
                      .with_code(ErrorCode::option)
                      .with_hint("a batch script on the host can"));
    if (request_.command == "srun")
      TRY(srun());
    else if (request_.command == "sbatch")
      TRY(sbatch());
    else if (request_.command == "salloc")
      TRY(salloc());
    else if (request_.command == "sbcast")
      TRY(sbcast());
    TRY(translate_options());
    made_.arguments = line_.words();
    return std::move(made_);
  }

 private:
  [[nodiscard]] bool takes_options() const {
    constexpr std::array<std::string_view, 4> kThese = {"srun", "sbatch", "salloc", "sbcast"};
    return std::find(kThese.begin(), kThese.end(), request_.command) != kThese.end();
  }

  /// --help, --version
  [[nodiscard]] bool asks_about_command() const {
    const auto asks = [](const CommandWord& word) {
      constexpr std::array<std::string_view, 5> kThese = {"--help", "--usage", "--version", "-h", "-V"};
      return std::find(kThese.begin(), kThese.end(), word.words[0]) != kThese.end();
    };
    return std::any_of(line_.options.begin(), line_.options.end(), asks);
  }

  Result<void> srun() {
    if (line_.has("bcast"))
      return fail(Error(ErrorKind::usage, "--bcast is not for containers: each node has the program in its image")
                      .with_code(ErrorCode::option)
                      .with_hint("sbcast sends a file of the container to the nodes"));
    const auto is_given = [&](std::string_view option) { return line_.has(option); };
    constexpr std::array<std::string_view, 4> kOthers = {"container-image", "container-name", "environment",
                                                         "no-container"};
    made_.same_container = !where_.dropped && std::none_of(kOthers.begin(), kOthers.end(), is_given);
    made_.workdir = request_.directory;
    if (made_.same_container) {
      TRY(take_chdir(made_.workdir));
      for (CommandWord& word : line_.options)
        if (word.option == "export" && word.has_value) word.set_value(kept_export(word.value));
    }
    constexpr std::array<std::string_view, 3> kSharing = {"overlap", "exact", "exclusive"};
    if (!where_.batch && std::none_of(kSharing.begin(), kSharing.end(), is_given))
      line_.options.insert(line_.options.begin(), {"overlap", "", false, {"--overlap"}});
    if (line_.has("multi-prog") && !line_.rest.empty()) {
      TRY_ASSIGN(line_.rest[0], read(line_.rest[0], line_.rest[0]));
    }
    return {};
  }

  Result<void> sbatch() {
    std::string script;
    if (!line_.rest.empty() && !line_.has("wrap")) {
      const std::string name = line_.rest[0];
      TRY_ASSIGN(line_.rest[0], read(find_script(name), name));
      script = beginning_of(made_.files.back());
      const bool named = line_.has("job-name") || environment_.has("SBATCH_JOB_NAME") || says(script, "-J", "--job");
      if (!named)
        line_.options.insert(line_.options.begin(), {"job-name", "", true, {"--job-name=" + base_name(name)}});
    }
    begins_elsewhere_ = line_.has("chdir") || says(script, "-D", "--chdir");
    if (made_.directory.empty() && !begins_elsewhere_ && !asks_about_command())
      return fail(only_inside("the working directory of the job", request_.directory,
                              "go to a directory that is mounted from the host, or name one with --chdir"));
    return {};
  }

  /// Its program is the container's. Slurm looks nowhere but on its own command line for it.
  Result<void> salloc() {
    slurm_line::Inside inside;
    inside.directory = request_.directory;
    TRY(take_chdir(inside.directory));
    if (!line_.has("no-shell")) {
      inside.command = std::exchange(line_.rest, {});
      made_.inside = std::move(inside);
    }
    return {};
  }

  Result<void> sbcast() {
    if (line_.rest.size() != 2) return {};
    TRY_ASSIGN(line_.rest[0], read(line_.rest[0], line_.rest[0]));
    TRY_ASSIGN(line_.rest[1], written(line_.rest[1], "the destination"));
    return {};
  }

  /// --chdir means a directory of the container; on the host the same one, if it is there, else the step's.
  Result<void> take_chdir(std::string& inside) {
    const auto value = line_.value("chdir");
    if (!value) return {};
    inside = absolute(*value, request_.directory);
    TRY_ASSIGN(const auto outside, container_.host_path(*value));
    made_.directory = outside.value_or("");
    std::erase_if(line_.options, [](const CommandWord& word) { return word.option == "chdir"; });
    return {};
  }

  Result<void> translate_options() {
    for (CommandWord& word : line_.options) {
      const auto* row = std::find_if(kPathOptions.begin(), kPathOptions.end(), [&](const PathOption& each) {
        return each.command == request_.command && each.option == word.option;
      });
      if (row == kPathOptions.end() || !word.has_value) continue;
      const std::string what = "--" + word.option + "=" + printable(word.value);
      TRY_ASSIGN(const std::optional<std::string> value, translate(word.value, row->meaning, what));
      if (value) word.set_value(*value);
    }
    return {};
  }

  /// nullopt: as it is.
  Result<std::optional<std::string>> translate(const std::string& value, Meaning meaning, const std::string& what) {
    if (is_no_file(value)) return std::optional<std::string>();
    // A batch job's own directory is where they begin.
    if (begins_elsewhere_ && meaning == Meaning::written && !value.starts_with('/'))
      return std::optional<std::string>();
    if (meaning == Meaning::read_list && value.find('/') == std::string::npos) return std::optional<std::string>();
    if (meaning == Meaning::place) {
      TRY_ASSIGN(const auto outside, container_.host_path(value));
      return outside ? Result<std::optional<std::string>>(outside) : fail(only_inside(what, value));
    }
    // With a pattern for each task it is opened on the nodes.
    if (meaning == Meaning::written || value.find('%') != std::string::npos) {
      TRY_ASSIGN(std::string path, written(value, what));
      return std::optional(std::move(path));
    }
    TRY_ASSIGN(std::string path, read(value, what));
    return std::optional(std::move(path));
  }

  Result<std::string> read(const std::string& path, const std::string& what) {
    auto file = container_.open(path);
    // The error of a path says its name already.
    if (!file && what != path) return fail(std::move(file).error().with_context(printable(what)));
    if (!file) return fail(std::move(file).error());
    made_.files.push_back(std::move(*file));
    return fd_path(kFirstFile + static_cast<int>(made_.files.size()) - 1);
  }

  /// Slurm's patterns ("%j") may stand in names of directories, too: only what is in front of them is looked up.
  Result<std::string> written(const std::string& value, const std::string& what) {
    const size_t pattern = std::min(value.find('%'), value.size());
    const size_t slash = value.rfind('/', pattern == value.size() ? value.npos : pattern);
    const std::string directory = slash == value.npos ? "." : slash == 0 ? "/" : value.substr(0, slash);
    const std::string name = slash == value.npos ? value : value.substr(slash + 1);
    TRY_ASSIGN(const auto outside, container_.host_path(directory));
    if (!outside) return fail(only_inside(what, directory == "." ? request_.directory : directory));
    return absolute(name, *outside);
  }

  /// As sbatch looks for it: here, then in PATH.
  [[nodiscard]] std::string find_script(const std::string& name) const {
    if (name.find('/') != std::string::npos || container_.open(name)) return name;
    const std::string directories = environment_.get_or("PATH", "");
    for (const std::string_view directory : split_nonempty(directories, ':'))
      if (std::string path = std::string(directory) + "/" + name; container_.open(path)) return path;
    return name;
  }

  static std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  const Request& request_;
  const ContainerFiles& container_;
  TypedIn where_;
  CommandLine line_;
  Environment environment_;
  bool begins_elsewhere_ = false;  ///< a batch job that has a directory of its own
  HostCommand made_;
};

}  // namespace

Result<HostCommand> host_command(const Request& request, const ContainerFiles& container, const TypedIn& where) {
  return Translation(request, container, where).make();
}

}  // namespace situla
