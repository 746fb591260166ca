#include "hooks/slurm/command_line.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace situla {
namespace {

/// Long names that take a value which may be a word of its own; getopt(3) calls that required_argument. Those whose
/// value is optional have it behind an '='. Of all releases, for srun, sbatch and salloc alike where not said
/// otherwise.
constexpr std::array<std::string_view, 114> kWithValue = {
    "accel-bind", "account", "acctg-freq", "array", "batch", "bb", "bbf", "bcast-exclude", "begin", "chdir",
    "cluster-constraint", "clusters", "comment", "constraint", "container", "container-id", "core-spec",
    "cores-per-socket", "cpu-bind", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency",
    "distribution", "epilog", "error", "exclude", "export", "export-file", "extra", "extra-node-info", "gid",
    "gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags",
    "het-group", "hint", "input", "job-name", "jobid", "kill-on-invalid-dep", "launcher-opts", "licenses", "mail-type",
    "mail-user", "max-threads", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "mpi",
    "msg-timeout", "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu",
    "ntasks-per-node", "ntasks-per-socket", "ntasks-per-tres", "open-mode", "output", "partition", "power", "prefer",
    "priority", "profile", "prolog", "qos", "relative", "reservation", "segment", "signal", "slurmd-debug",
    "sockets-per-node", "switches", "task-epilog", "task-prolog", "tasks-per-node", "thread-spec", "threads",
    "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "treewidth", "uid", "wait-all-nodes",
    "wckey", "workdir", "wrap",
    // Situla's own.
    "container-devices", "container-env", "container-image", "container-mounts", "container-name", "container-resolve",
    "container-save", "container-unshare", "container-workdir", "environment"};
constexpr std::array<std::string_view, 5> kWithValueSbcast = {"exclude", "fanout", "jobid", "size", "timeout"};

/// They take none, or one behind an '=', and others begin like them.
constexpr std::array<std::string_view, 2> kBeginOthers = {"bcast", "wait"};
/// -W waits for so many seconds in srun, and for the job in sbatch.
constexpr std::string_view kOfSrunAlone = "wait";

struct ShortName {
  char letter;
  std::string_view name;
};
constexpr std::array kShort = std::to_array<ShortName>(
    {{'A', "account"},       {'B', "extra-node-info"}, {'C', "constraint"}, {'D', "chdir"},    {'F', "nodefile"},
     {'G', "gpus"},          {'J', "job-name"},        {'L', "licenses"},   {'M', "clusters"}, {'N', "nodes"},
     {'S', "core-spec"},     {'T', "threads"},         {'W', "wait"},       {'a', "array"},    {'b', "begin"},
     {'c', "cpus-per-task"}, {'d', "dependency"},      {'e', "error"},      {'i', "input"},    {'m', "distribution"},
     {'n', "ntasks"},        {'o', "output"},          {'p', "partition"},  {'q', "qos"},      {'r', "relative"},
     {'t', "time"},          {'w', "nodelist"},        {'x', "exclude"}});
constexpr std::array kShortSbcast =
    std::to_array<ShortName>({{'F', "fanout"}, {'j', "jobid"}, {'s', "size"}, {'t', "timeout"}});
/// Their value, if they have one, is the rest of the word.
constexpr std::string_view kOptionalShort = "IKk";
constexpr std::string_view kOptionalShortSbcast = "C";

std::span<const std::string_view> names_of(std::string_view command) {
  if (command == "sbcast") return kWithValueSbcast;
  return kWithValue;
}

std::span<const ShortName> letters_of(std::string_view command) {
  if (command == "sbcast") return kShortSbcast;
  return kShort;
}

std::string_view optional_letters_of(std::string_view command) {
  return command == "sbcast" ? kOptionalShortSbcast : kOptionalShort;
}

/// The full name of what may be shortened, as far as it takes a value.
std::string full_name(std::string_view command, std::string_view typed) {
  if (std::find(kBeginOthers.begin(), kBeginOthers.end(), typed) != kBeginOthers.end()) return std::string(typed);
  std::vector<std::string_view> fitting;
  for (const std::string_view name : names_of(command)) {
    if (name == typed) return std::string(name);
    if (name.starts_with(typed)) fitting.push_back(name);
  }
  return std::string(fitting.size() == 1 ? fitting[0] : typed);
}

/// Reads words one after the other.
class Reader {
 public:
  Reader(std::string_view command, const std::vector<std::string>& words) : command_(command), words_(words) {}

  CommandLine read() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_];
      if (word == "--") {
        line_.options.push_back({"", "", false, {word}});
        ++next_;
        break;
      }
      const bool is_option = word.size() > 1 && word[0] == '-';
      // sbcast alone reads options behind other words, too.
      if (!is_option && command_ != "sbcast") break;
      ++next_;
      if (!is_option) {
        line_.rest.push_back(word);
        continue;
      }
      if (word.starts_with("--"))
        read_long(word);
      else
        read_short(word);
    }
    line_.rest.insert(line_.rest.end(), words_.begin() + static_cast<std::ptrdiff_t>(next_), words_.end());
    return std::move(line_);
  }

 private:
  void read_long(const std::string& word) {
    const size_t equals = word.find('=');
    CommandWord option;
    option.option = full_name(command_, std::string_view(word).substr(2, equals == word.npos ? word.npos : equals - 2));
    option.words = {word};
    if (equals != word.npos) {
      option.value = word.substr(equals + 1);
      option.has_value = true;
    } else if (takes_value(command_, option.option)) {
      take_next(option);
    }
    line_.options.push_back(std::move(option));
  }

  /// "-lN2": letters without a value, and at most one with.
  void read_short(const std::string& word) {
    const auto letters = letters_of(command_);
    CommandWord option;
    option.words = {word};
    for (size_t at = 1; at < word.size(); ++at) {
      const auto row =
          std::find_if(letters.begin(), letters.end(), [&](const ShortName& each) { return each.letter == word[at]; });
      if (row != letters.end() && takes_value(command_, row->name)) {
        option.option = row->name;
        option.letters = word.substr(1, at - 1);
        option.value = word.substr(at + 1);
        option.has_value = !option.value.empty();
        if (!option.has_value) take_next(option);
        break;
      }
      if (optional_letters_of(command_).find(word[at]) != std::string_view::npos) break;
    }
    line_.options.push_back(std::move(option));
  }

  void take_next(CommandWord& option) {
    if (next_ == words_.size()) return;
    option.value = words_[next_++];
    option.has_value = true;
    option.words.push_back(option.value);
  }

  std::string_view command_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  CommandLine line_;
};

}  // namespace

void CommandWord::set_value(const std::string& new_value) {
  words = {"--" + option + "=" + new_value};
  if (!letters.empty()) words.insert(words.begin(), "-" + letters);
  value = new_value;
}

bool CommandLine::has(std::string_view option) const {
  return std::any_of(options.begin(), options.end(), [&](const CommandWord& word) { return word.option == option; });
}

std::optional<std::string> CommandLine::value(std::string_view option) const {
  std::optional<std::string> found;
  for (const CommandWord& word : options)
    if (word.option == option && word.has_value) found = word.value;
  return found;
}

std::vector<std::string> CommandLine::words() const {
  std::vector<std::string> all;
  for (const CommandWord& word : options) all.insert(all.end(), word.words.begin(), word.words.end());
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

bool takes_value(std::string_view command, std::string_view option) {
  if (option == kOfSrunAlone) return command == "srun";
  const auto names = names_of(command);
  return std::find(names.begin(), names.end(), option) != names.end();
}

CommandLine parse_command_line(std::string_view command, const std::vector<std::string>& arguments) {
  return Reader(command, arguments).read();
}

}  // namespace situla
