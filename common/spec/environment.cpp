#include "common/spec/environment.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "common/base/text.hpp"

namespace situla {
namespace {

bool is_name_start(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}
bool is_name_char(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

bool can_hold(std::string_view name, std::string_view value) {
  return !name.empty() && name.find('=') == std::string_view::npos && name.find('\0') == std::string_view::npos &&
         value.find('\0') == std::string_view::npos;
}

/// Length of the variable name at the start of text, or 0.
size_t name_length(std::string_view text) {
  if (text.empty() || !is_name_start(text.front())) return 0;
  size_t length = 1;
  while (length < text.size() && is_name_char(text[length])) ++length;
  return length;
}

/// Collects definitions in linear time; the views it is given must outlive it.
class Collector {
 public:
  explicit Collector(std::vector<Environment::Entry>& entries) : entries_(entries) {}
  void add(std::string_view definition) {
    const size_t equals = definition.find('=');
    if (equals == std::string_view::npos || equals == 0) return;
    const std::string_view name = definition.substr(0, equals);
    const std::string_view value = definition.substr(equals + 1);
    const auto [position, is_new] = index_.try_emplace(name, entries_.size());
    if (is_new)
      entries_.emplace_back(name, value);
    else
      entries_[position->second].second = value;
  }

 private:
  std::vector<Environment::Entry>& entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace

Environment Environment::from_envp(const char* const* envp) {
  Environment environment;
  Collector collector(environment.entries_);
  for (; envp != nullptr && *envp != nullptr; ++envp) collector.add(*envp);
  return environment;
}

Environment Environment::from_block(std::string_view block) {
  Environment environment;
  Collector collector(environment.entries_);
  while (!block.empty()) {
    const size_t end = std::min(block.find('\0'), block.size());
    collector.add(block.substr(0, end));
    block.remove_prefix(std::min(end + 1, block.size()));
  }
  return environment;
}

std::optional<std::string_view> Environment::get(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.first == name) return entry.second;
  return std::nullopt;
}

std::string Environment::get_or(std::string_view name, std::string_view fallback) const {
  return std::string(get(name).value_or(fallback));
}

void Environment::set(std::string_view name, std::string_view value) {
  if (!can_hold(name, value)) return;
  for (Entry& entry : entries_) {
    if (entry.first != name) continue;
    entry.second = value;
    return;
  }
  entries_.emplace_back(name, value);
}

void Environment::unset(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; });
}

void Environment::merge(const Environment& other) {
  for (const Entry& entry : other.entries_) set(entry.first, entry.second);
}

std::string Environment::block() const {
  std::string bytes;
  for (const Entry& entry : entries_) {
    bytes += entry.first;
    bytes += '=';
    bytes += entry.second;
    bytes += '\0';
  }
  return bytes;
}

Environment Environment::from_strings(const std::vector<std::string>& entries) {
  Environment environment;
  for (const std::string& entry : entries)
    if (const auto parts = cut(entry, '=')) environment.set(parts->first, parts->second);
  return environment;
}

std::vector<std::string> Environment::strings() const {
  std::vector<std::string> list;
  list.reserve(entries_.size());
  for (const Entry& entry : entries_) list.push_back(entry.first + "=" + entry.second);
  return list;
}

bool is_variable_name(std::string_view name) {
  return !name.empty() && name_length(name) == name.size();
}

namespace {

/// What stands between the braces of ${...}.
Result<std::string> expand_braced(std::string_view inside, const VariableLookup& lookup) {
  const std::string_view name = inside.substr(0, name_length(inside));
  const std::string_view rest = inside.substr(name.size());
  const bool has_word = rest.starts_with(":-");
  if (name.empty() || (!rest.empty() && !has_word))
    return fail(Error(ErrorKind::usage, "${" + printable(inside) + "} is no reference to a variable")
                    .with_code(ErrorCode::environment_file)
                    .with_hint("write ${NAME} or ${NAME:-WORD}, and $$ for a dollar sign"));
  auto value = lookup(name);
  if (value && !(has_word && value->empty())) return *std::move(value);
  if (has_word) return std::string(rest.substr(2));
  return fail(Error(ErrorKind::usage, "variable " + std::string(name) + " is not set")
                  .with_code(ErrorCode::environment_file)
                  .with_hint("${" + std::string(name) + ":-} stands for nothing where it is not set"));
}

}  // namespace

Result<std::string> expand_references(std::string_view text, const VariableLookup& lookup) {
  std::string expanded;
  while (true) {
    const size_t dollar = text.find('$');
    expanded += text.substr(0, dollar);
    if (dollar == std::string_view::npos) return expanded;
    text.remove_prefix(dollar + 1);
    const bool braced = text.starts_with('{');
    const size_t end = braced ? text.find('}') : name_length(text);
    if (end == std::string_view::npos)
      return fail(Error(ErrorKind::usage, "a \"${\" has no \"}\"").with_code(ErrorCode::environment_file));
    if (braced || end > 0) {
      TRY_ASSIGN(const std::string value, expand_braced(text.substr(braced ? 1 : 0, braced ? end - 1 : end), lookup));
      expanded += value;
      text.remove_prefix(braced ? end + 1 : end);
    } else {
      expanded += '$';
      if (text.starts_with('$')) text.remove_prefix(1);
    }
  }
}

std::string expand_variables(std::string_view text, const Environment& environment) {
  std::string expanded;
  while (!text.empty()) {
    const size_t special = std::min(text.find_first_of("$\\"), text.size());
    expanded += text.substr(0, special);
    text.remove_prefix(special);
    if (text.empty()) break;
    if (text.starts_with("\\$")) {
      expanded += '$';
      text.remove_prefix(2);
      continue;
    }
    const bool braced = text.starts_with("${");
    const size_t begin = braced ? 2 : 1;
    const size_t length = text.front() == '$' ? name_length(text.substr(begin)) : 0;
    const bool closed = !braced || (begin + length < text.size() && text[begin + length] == '}');
    if (length == 0 || !closed) {
      expanded += text.front();
      text.remove_prefix(1);
      continue;
    }
    expanded += environment.get(text.substr(begin, length)).value_or("");
    text.remove_prefix(begin + length + (braced ? 1 : 0));
  }
  return expanded;
}

Environment for_plain_step(const Environment& environment) {
  constexpr std::array<std::string_view, 7> kOfContainers = {"SITULA_CONTAINER_",
                                                             "PYXIS_CONTAINER_",
                                                             "SLURM_SITULA_",
                                                             "_SLURM_SPANK_OPTION_situla_",
                                                             "_SLURM_SPANK_OPTION_pyxis_",
                                                             "SLURM_SPANK__SLURM_SPANK_OPTION_situla_",
                                                             "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_"};
  constexpr std::array<std::string_view, 4> kOfOutput = {"SLURM_LABELIO", "SLURM_STDOUTMODE", "SLURM_STDERRMODE",
                                                         "SLURM_STDINMODE"};
  Environment plain;
  for (const auto& [name, value] : environment.entries())
    if (!starts_with_one_of(name, kOfContainers) &&
        std::find(kOfOutput.begin(), kOfOutput.end(), name) == kOfOutput.end())
      plain.set(name, value);
  return plain;
}

std::string expand_home(std::string_view path, const Environment& environment) {
  const std::string home = environment.get_or("HOME", "");
  const bool is_home = path == "~" || path.starts_with("~/");
  return is_home && !home.empty() ? home + std::string(path.substr(1)) : std::string(path);
}

}  // namespace situla
