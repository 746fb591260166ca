#include "hooks/edf/edf_file.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "common/base/text.hpp"
#include "common/spec/environment.hpp"
#include "common/toml/toml.hpp"

namespace situla::edf {
namespace {

// toml++ destroys tables in tables by recursion, and a key with many dots makes as many of them.
constexpr std::ptrdiff_t kMostDots = 512;

constexpr std::array<std::string_view, 9> kKeys = {"base_environment", "image",   "mounts", "workdir",    "writable",
                                                   "entrypoint",       "devices", "env",    "annotations"};
// Of Sarus Suite: how its own engine is run.
constexpr std::array<std::string_view, 4> kForeign = {"engine", "parallax_", "perfmon", "podman_"};

/// nullopt also for one with a NUL, which no variable and no path can have.
std::optional<std::string> text_of(const toml::node& value) {
  auto text = value.value_exact<std::string>();
  return text && text->find('\0') == std::string::npos ? std::move(text) : std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  EdfReading read(std::string_view text) && {
    read_keys(text);
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [line, error] : problems_) reading_.problems.push_back(std::move(error));
    return std::move(reading_);
  }

 private:
  static size_t line_of_many_dots(std::string_view text) {
    size_t number = 0;
    for (const std::string_view line : split(text, '\n')) {
      ++number;
      if (std::count(line.begin(), line.end(), '.') > kMostDots) return number;
    }
    return 0;
  }

  void read_keys(std::string_view text) {
    if (const size_t line = line_of_many_dots(text); line > 0)
      return wrong(line, "more than " + std::to_string(kMostDots) + " dots in one line");
    const toml::parse_result table = toml::parse(text);
    if (!table)
      return wrong(table.error().source().begin.line, std::string(table.error().description()),
                   "text is written in quotes: image = \"ubuntu:24.04\"");
    for (const auto& [name, value] : table.table()) read_key(name.str(), value);
  }

  void wrong(size_t line, const std::string& what, const std::string& hint = "") {
    Error error(ErrorKind::usage, path_ + ":" + std::to_string(line) + ": " + printable(what));
    problems_.emplace_back(line, std::move(error).with_code(ErrorCode::environment_file).with_hint(hint));
  }
  void wrong(const toml::node& node, const std::string& what, const std::string& hint = "") {
    wrong(node.source().begin.line, what, hint);
  }
  [[nodiscard]] std::string where(const toml::node& node) const {
    return path_ + ":" + std::to_string(node.source().begin.line);
  }

  template <typename T>
  void read(std::string_view name, const toml::node& value, std::optional<Said<T>>& target) {
    std::optional<T> found;
    if constexpr (std::is_same_v<T, bool>)
      found = value.value_exact<bool>();
    else
      found = text_of(value);
    if (found)
      target = Said<T>{*std::move(found), where(value)};
    else
      wrong(value, std::string(name) + " must be " + (std::is_same_v<T, bool> ? "true or false" : "a string"));
  }

  /// one: a string alone is a list of one.
  void read_list(std::string_view name, const toml::node& value, bool one, std::vector<Said<std::string>>& target) {
    if (const auto text = text_of(value); text && one) {
      if (!text->empty()) target.push_back({*text, where(value)});
      return;
    }
    const toml::array* array = value.as_array();
    if (array == nullptr)
      return wrong(value, std::string(name) + " must be a list of strings" + (one ? ", or a string" : ""));
    for (const toml::node& entry : *array) {
      if (const auto text = text_of(entry))
        target.push_back({*text, where(entry)});
      else
        wrong(entry, "an entry of " + std::string(name) + " must be a string");
    }
  }

  void read_env(const toml::node& value) {
    if (!value.is_table()) return wrong(value, "env must be a table, written [env]");
    for (const auto& [name, entry] : *value.as_table()) {
      const std::string key(name.str());
      const auto text = text_of(entry);
      if (!is_variable_name(key))
        wrong(entry, "\"" + key + "\" is no name of a variable");
      else if (!text)
        wrong(entry, key + " must be a string", "write it in quotes; \"\" unsets the variable");
      else
        reading_.file.env[key] = {*text, where(entry)};
    }
  }

  void read_annotations(const std::string& prefix, const toml::node& value) {
    if (const toml::table* table = value.as_table()) {
      for (const auto& [name, entry] : *table)
        read_annotations(prefix + (prefix.empty() ? "" : ".") + std::string(name.str()), entry);
    } else if (const auto text = text_of(value); text && !prefix.empty()) {
      reading_.file.annotations[prefix] = {*text, where(value)};
    } else if (const auto flag = value.value_exact<bool>(); flag && !prefix.empty()) {
      reading_.file.annotations[prefix] = {*flag ? "true" : "false", where(value)};
    } else if (const auto number = value.value_exact<int64_t>(); number && !prefix.empty()) {
      reading_.file.annotations[prefix] = {std::to_string(*number), where(value)};
    } else {
      wrong(value,
            prefix.empty() ? "annotations must be a table, written [annotations]" : prefix + " must be a string");
    }
  }

  void read_key(std::string_view name, const toml::node& value) {
    EdfFile& file = reading_.file;
    if (name == "base_environment") return read_list(name, value, true, file.bases);
    if (name == "image") return read(name, value, file.image);
    if (name == "workdir") return read(name, value, file.workdir);
    if (name == "writable") return read(name, value, file.writable);
    if (name == "entrypoint") return read(name, value, file.entrypoint);
    if (name == "mounts") return read_list(name, value, false, file.mounts);
    if (name == "devices") return read_list(name, value, false, file.devices);
    if (name == "env") return read_env(value);
    if (name == "annotations") return read_annotations("", value);
    const bool foreign = std::any_of(kForeign.begin(), kForeign.end(), [&](std::string_view known) {
      return known.ends_with('_') ? name.starts_with(known) : name == known;
    });
    if (foreign)
      file.ignored.push_back({std::string(name), where(value)});
    else
      wrong(value, "unknown key \"" + std::string(name) + "\"", suggestion(name, kKeys, "known keys"));
  }

  const std::string& path_;
  EdfReading reading_;
  std::vector<std::pair<size_t, Error>> problems_;
};

template <typename T>
void replace(std::optional<T>& value, std::optional<T>& next) {
  if (next) value = std::move(next);
}

void append(std::vector<Said<std::string>>& list, std::vector<Said<std::string>>& next) {
  for (Said<std::string>& entry : next)
    if (std::none_of(list.begin(), list.end(), [&](const auto& known) { return known.value == entry.value; }))
      list.push_back(std::move(entry));
}

void merge(std::map<std::string, Said<std::string>>& table, std::map<std::string, Said<std::string>>& next) {
  for (auto& [name, value] : next) table.insert_or_assign(name, std::move(value));
}

}  // namespace

void EdfFile::add(EdfFile next) {
  replace(image, next.image);
  replace(workdir, next.workdir);
  replace(writable, next.writable);
  replace(entrypoint, next.entrypoint);
  append(mounts, next.mounts);
  append(devices, next.devices);
  append(ignored, next.ignored);
  merge(env, next.env);
  merge(annotations, next.annotations);
}

EdfReading parse_edf(std::string_view text, const std::string& path) {
  return Reader(path).read(text);
}

}  // namespace situla::edf
