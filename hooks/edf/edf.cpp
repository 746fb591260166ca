#include "hooks/edf/edf.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "hooks/edf/edf_values.hpp"

namespace situla::edf {
namespace {

constexpr size_t kMostLevels = 10;  // as documented
constexpr size_t kMostFiles = 64;   // files that name each other several times would be read without end

/// Reads files depth first: what a file is based on comes before what it says itself.
class Loader {
 public:
  Loader(const EdfPlaces& places, Edf& edf) : places_(places), edf_(edf) {}

  /// asked_at: the line that names it, empty for the first.
  Result<void> load(const std::string& name, const std::string& asked_at) {
    auto path = find_edf(name, places_);
    if (!path) return fail(with_place(std::move(path).error(), asked_at));
    TRY(check_chain(*path, asked_at));
    auto text = read_edf(*path);
    if (!text) return fail(with_place(std::move(text).error(), asked_at));
    EdfReading reading = parse_edf(*text, *path);
    if (!reading.problems.empty()) {
      const Error first = reading.problems.front();
      problems_ = std::move(reading.problems);
      return fail(first);
    }
    if (++read_ > kMostFiles)
      return fail(ErrorKind::usage, asked_at + ": more than " + std::to_string(kMostFiles) + " files in all");
    chain_.push_back(*path);
    for (const Said<std::string>& base : reading.file.bases) TRY(load(base.value, base.where));
    chain_.pop_back();
    add_once(edf_.files, *path);
    edf_.combined.add(std::move(reading.file));
    return {};
  }

  /// Of the file that could not be read.
  [[nodiscard]] const std::vector<Error>& problems() const { return problems_; }

 private:
  static Error with_place(Error error, const std::string& asked_at) {
    return asked_at.empty() ? error : std::move(error).with_context(asked_at);
  }

  Result<void> check_chain(const std::string& path, const std::string& asked_at) const {
    if (const auto first = std::find(chain_.begin(), chain_.end(), path); first != chain_.end()) {
      std::vector<std::string> circle(first, chain_.end());
      circle.push_back(path);
      return fail(ErrorKind::usage, asked_at + ": base_environment goes in a circle: " + join(circle, " -> "));
    }
    if (chain_.size() > kMostLevels)
      return fail(ErrorKind::usage, asked_at + ": base_environment over more than " + std::to_string(kMostLevels) +
                                        " levels: " + join(chain_, " -> "));
    return {};
  }

  const EdfPlaces& places_;
  Edf& edf_;
  std::vector<std::string> chain_;
  std::vector<Error> problems_;
  size_t read_ = 0;
};

Result<Edf> load(const std::string& name, const EdfPlaces& places, std::vector<Error>& problems) {
  Edf edf;
  edf.name = name;
  Loader loader(places, edf);
  if (auto loaded = loader.load(name, ""); !loaded) {
    problems = loader.problems();
    return fail(std::move(loaded).error().with_code(ErrorCode::environment_file));
  }
  if (auto settled = settle_values(edf.combined, places); !settled)
    return fail(std::move(settled).error().with_code(ErrorCode::environment_file));
  edf.warnings = unheeded(edf.combined);
  return edf;
}

template <typename T>
T value_or(const std::optional<Said<T>>& said, T otherwise) {
  return said ? said->value : std::move(otherwise);
}

}  // namespace

Result<Edf> load_edf(const std::string& name, const EdfPlaces& places) {
  std::vector<Error> problems;
  return load(name, places, problems);
}

std::vector<Error> check_edf(const std::string& name, const EdfPlaces& places) {
  std::vector<Error> problems;
  auto edf = load(name, places, problems);
  if (!edf && problems.empty()) problems.push_back(std::move(edf).error());
  return problems;
}

ResolvedEnvironment options_of(const Edf& edf) {
  const EdfFile& file = edf.combined;
  ResolvedEnvironment resolved;
  resolved.name = edf.name;
  resolved.image = value_or<std::string>(file.image, "");
  resolved.workdir = value_or<std::string>(file.workdir, "");
  resolved.writable = value_or(file.writable, true);
  resolved.entrypoint = value_or(file.entrypoint, true);
  for (const auto& mount : file.mounts) resolved.mounts.push_back({mount.value, mount.where + ": mounts"});
  for (const auto& mount : file.device_mounts) resolved.mounts.push_back({mount.value, mount.where + ": devices"});
  for (const auto& device : file.devices) resolved.devices.push_back(device.value);
  for (const auto& [name, said] : file.env) resolved.variables.push_back(name + "=" + said.value);
  resolved.warnings = edf.warnings;
  return resolved;
}

}  // namespace situla::edf
