// Sums, the variables of sbatch and salloc, and those of pyxis: how options reach the steps inside a job.
#include <algorithm>

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

}  // namespace

std::vector<std::pair<std::string, std::string>> ContainerOptions::sums() const {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [option, value] : values_)
    if (option->sum != nullptr) variables.emplace_back(option->sum, repeated_.contains(option) ? value : std::string());
  return variables;
}

void ContainerOptions::inherit_sums(const Lookup& lookup) {
  for (const OptionInfo& option : option_table()) {
    if (option.sum == nullptr) continue;
    const auto sum = lookup(option.sum);
    const auto last = lookup(inherited_variable(option));
    if (!sum || !last || !sum->ends_with("," + *last)) continue;
    values_.insert_or_assign(&option, *sum);
    repeated_.insert(&option);
  }
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
