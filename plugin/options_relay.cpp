// Sums, the variables of sbatch and salloc, and those of pyxis: how options reach the steps inside a job.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "plugin/options.hpp"

namespace situla {
namespace {

/// As Slurm spells an option in the variable by which a job hands it on to its steps.
std::string inherited_variable(const OptionInfo& option, std::string_view plugin = "situla") {
  std::string name = "_SLURM_SPANK_OPTION_" + std::string(plugin) + "_" + option.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// What spank_job_control_setenv() and Slurm itself put before such a name in the job's environment.
constexpr std::string_view kJobPrefix = "SLURM_SPANK_";

/// What a part of a heterogeneous srun was given.
struct Part {
  struct Given {
    std::string option, value;

    static auto fields(auto& it) { return std::tie(it.option, it.value); }
  };
  std::vector<Given> given;
  std::optional<ResolvedEnvironment> file;

  static auto fields(auto& it) { return std::tie(it.given, it.file); }
};
constexpr WireForm kPartForm{.what = "options of a part", .version = 0x53500101, .most_bytes = size_t{96} << 10U};

}  // namespace

std::vector<std::pair<std::string, std::string>> ContainerOptions::sums() const {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [option, value] : values_)
    if (option->sum != nullptr) variables.emplace_back(option->sum, repeated_.contains(option) ? value : std::string());
  return variables;
}

void ContainerOptions::inherit_sums(const Lookup& lookup) {
  for (const OptionInfo& option : option_table()) {
    const auto last = lookup(inherited_variable(option));
    if (last) of_job_.emplace(&option, option.argument == nullptr ? "" : *last);
    if (option.sum == nullptr) continue;
    const auto sum = lookup(option.sum);
    if (!sum || !last || !sum->ends_with("," + *last)) continue;
    job_sums_.emplace(&option, *sum);
    of_job_.insert_or_assign(&option, *sum + "," + *last);
  }
  begin_part();
}

void ContainerOptions::begin_part() {
  values_ = job_sums_;
  repeated_.clear();
  for (const auto& [option, sum] : job_sums_) repeated_.insert(option);
}

void ContainerOptions::inherit_environment(const Lookup& lookup) {
  const auto text = lookup(kResolvedVariable);
  if (!text) return;
  auto resolved = ResolvedEnvironment::from_text(*text);
  for (const OptionInfo& option : option_table()) {
    if (option.name != std::string_view("environment") || !resolved) continue;
    const auto given = lookup(inherited_variable(option));
    if (given && *given == resolved->name) file_ = std::move(*resolved);
  }
}

bool ContainerOptions::has_environment_of_job() const {
  return file_ && environment() == file_->name;
}

Result<void> ContainerOptions::apply_submitted(const Lookup& lookup) {
  if (!values_.empty()) return {};
  for (const OptionInfo& option : option_table())
    if (const auto value = lookup(std::string(kJobPrefix) + inherited_variable(option))) TRY(set(option, *value));
  return {};
}

std::vector<std::pair<std::string, std::string>> ContainerOptions::pyxis_variables() const {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [option, value] : values_) variables.emplace_back(inherited_variable(*option, "pyxis"), value);
  return variables;
}

std::vector<std::string> ContainerOptions::unset_by_script(const Lookup& lookup) {
  std::vector<std::string> names;
  for (const OptionInfo& option : option_table()) {
    // As a batch script and as salloc's shell see them.
    for (const std::string_view prefix : {kJobPrefix, std::string_view()}) {
      std::string name = std::string(prefix) + inherited_variable(option);
      if (lookup(name) && !lookup(std::string(prefix) + inherited_variable(option, "pyxis")))
        names.push_back(std::move(name));
    }
  }
  return names;
}

void ContainerOptions::end_part() {
  before_ = std::exchange(values_, {});
  repeated_before_ = std::exchange(repeated_, {});
  begin_part();
}

void ContainerOptions::take_from_parts_before() {
  const OptionInfo* const no_container = find_option("no-container");
  for (auto& [option, value] : std::exchange(before_, {})) {
    const auto is_given = [&](const OptionInfo* other) {
      const auto own = other == nullptr ? values_.end() : values_.find(other);
      const auto of_job = of_job_.find(other);
      return own != values_.end() && (of_job == of_job_.end() || own->second != of_job->second);
    };
    if (is_given(option) || is_given(opposite_of(*option)) || option == no_container) continue;
    values_.insert_or_assign(option, std::move(value));
    values_.erase(opposite_of(*option));
    if (repeated_before_.contains(option)) repeated_.insert(option);
  }
}

std::string ContainerOptions::part() const {
  Part part;
  for (const auto& [option, value] : values_) part.given.push_back({option->name, value});
  part.file = file_;
  return encode_base64(to_wire(part, kPartForm));
}

Result<void> ContainerOptions::use_part(std::string_view text) {
  const auto bytes = decode_base64(text);
  TRY_ASSIGN(Part part, bytes ? from_wire<Part>(*bytes, kPartForm) : fail(ErrorKind::corrupt, "no base64"));
  values_.clear();
  for (const Part::Given& given : part.given) {
    const OptionInfo* const option = find_option(given.option);
    if (option == nullptr) return fail(ErrorKind::corrupt, "there is no option --" + printable(given.option));
    TRY(set(*option, given.value));
  }
  file_ = std::move(part.file);
  return {};
}

void ContainerOptions::apply_sums(const Lookup& lookup) {
  for (auto& [option, value] : values_) {
    if (option->sum == nullptr) continue;
    const auto sum = lookup(option->sum);
    // Another end: it is of the job, and this step has its own.
    ContainerSpec unused;
    if (sum && sum->ends_with("," + value) && option->apply(*sum, unused)) value = *sum;
  }
}

}  // namespace situla
