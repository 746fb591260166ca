#include "plugin/options.hpp"

#include <algorithm>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/spec/digest.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

constexpr const char* kImage = "container-image";
constexpr const char* kName = "container-name";
constexpr std::string_view kEnvironment = "environment";
constexpr const char* kNoContainer = "no-container";

std::string spelled(const OptionInfo& option) {
  return std::string("--") + option.name;
}

Error wrong(std::string what) {
  return Error(ErrorKind::usage, std::move(what)).with_code(ErrorCode::option);
}

Result<void> check_value(const OptionInfo& option, std::string_view value) {
  if (option.argument != nullptr && value.empty()) return fail(wrong("needs a value"));
  if (value.find('\0') != std::string_view::npos) return fail(wrong("value holds a NUL byte"));
  ContainerSpec unused;
  auto applied = option.apply(value, unused);
  if (!applied) applied.error().with_code(ErrorCode::option);
  return applied;
}

}  // namespace

Result<void> ContainerOptions::set(const OptionInfo& option, std::string_view value) {
  // In a job's environment Slurm writes "(null)" for what has none.
  if (option.argument == nullptr) value = {};
  TRY_CONTEXT(spelled(option), check_value(option, value));
  if (const OptionInfo* opposite = opposite_of(option); opposite != nullptr && values_.contains(opposite))
    return fail(wrong("both " + spelled(*std::min(&option, opposite)) + " and " +
                      spelled(*std::max(&option, opposite)) + " were given")
                    .with_code(ErrorCode::option)
                    .with_hint("what salloc, sbatch or a line #SBATCH was given counts for srun in the job, too"));
  const auto [entry, inserted] = values_.try_emplace(&option, value);
  if (inserted) repeated_.erase(&option);
  if (inserted || entry->second == value) return {};
  if (option.sum == nullptr)
    return fail(wrong(spelled(option) + ": specified multiple times")
                    .with_code(ErrorCode::option)
                    .with_hint("with " + printable(entry->second) + " and with " + printable(value) +
                               "; what salloc, sbatch or a line #SBATCH was given counts for srun in the job, too"));
  entry->second += ',';
  entry->second += value;
  repeated_.insert(&option);
  return {};
}

Result<void> ContainerOptions::apply_environment(const Lookup& lookup) {
  for (const OptionInfo& option : option_table()) {
    if (option.variable == nullptr) continue;
    const OptionInfo* opposite = opposite_of(option);
    const auto known = [&](const auto& options) { return options.contains(&option) || options.contains(opposite); };
    if (known(values_) || known(defaults_)) continue;
    for (const char* prefix : {"SITULA_CONTAINER_", "PYXIS_CONTAINER_"}) {
      const auto value = lookup(std::string(prefix) + option.variable);
      if (!value || value->empty()) continue;
      const auto boolean = parse_boolean(*value);
      if (option.argument == nullptr && !boolean) {  // COMPAT.md 1: other spellings are ignored
        ignored_.push_back("ignoring " + std::string(prefix) + option.variable + "=" + printable(*value) +
                           ": write 1 or 0");
        continue;
      }
      if (option.argument != nullptr)
        defaults_.emplace(&option, *value);
      else if (*boolean)
        defaults_.emplace(&option, "");
      else if (opposite != nullptr)
        defaults_.emplace(opposite, "");
      break;
    }
  }
  // A default is checked only when there will be a container: a stray variable must not break jobs without one.
  if (!wants_container()) return {};
  for (const auto& [option, value] : defaults_)
    TRY_CONTEXT(spelled(*option) + " (from the environment)", check_value(*option, value));
  return {};
}

Result<void> ContainerOptions::check_for_allocation() const {
  if (!given(kNoContainer)) return {};
  return fail(wrong("--no-container is for srun"));
}

Result<void> ContainerOptions::use_outer_container(const Lookup& lookup) {
  const auto text = lookup(kSameContainerVariable);
  outer_.reset();
  for (const char* name : {kImage, kName, kNoContainer})
    if (!text || values_.contains(find_option(name))) return {};
  if (environment()) return {};
  const auto bytes = decode_base64(*text);
  auto outer = bytes ? ContainerSpec::deserialize(*bytes)
                     : fail(ErrorKind::corrupt, std::string(kSameContainerVariable) + " is no specification");
  if (!outer) return fail(std::move(outer).error());
  // Whoever wrote it: what options are checked for holds here, too.
  if (!outer->image.empty()) TRY(check_value(*find_option(kImage), outer->image));
  if (!outer->name.empty()) TRY(check_value(*find_option(kName), outer->name));
  outer->directory.clear();
  if (!Digest::parse(outer->pinned)) outer->pinned.clear();
  outer_ = std::move(*outer);
  return {};
}

Result<ContainerSpec> ContainerOptions::beneath_options() const {
  if (outer_) return *outer_;
  ContainerSpec spec;
  if (auto applied = file_ ? file_->apply(spec) : Result<void>(); !applied)
    return fail(std::move(applied)
                    .error()
                    .with_context("--environment=" + printable(file_->name))
                    .with_code(ErrorCode::environment_file));
  return spec;
}

Result<std::optional<ContainerSpec>> ContainerOptions::finish() const {
  if (!wants_container()) return std::optional<ContainerSpec>();
  TRY_ASSIGN(ContainerSpec spec, beneath_options());
  auto mounts = std::exchange(spec.mounts, {});
  auto devices = std::exchange(spec.devices, {});
  for (const auto* options : {&defaults_, &values_})
    for (const auto& [option, value] : *options) TRY(option->apply(value, spec));
  add_to_those_of_file(spec, std::move(mounts), std::move(devices));
  if (spec.prefetch && (!spec.name.empty() || !spec.save.empty() || image_kind(spec.image) != ImageKind::registry))
    return fail(Error(ErrorKind::usage, "--container-prefetch is for an image of a registry, and makes no container")
                    .with_code(ErrorCode::option)
                    .with_hint("give --container-image=[REGISTRY#]IMAGE, and neither a name nor --container-save"));
  return std::optional(std::move(spec));
}

bool ContainerOptions::wants_container() const {
  if (given(kNoContainer)) return false;
  return outer_ || given(kImage) || given(kName) || (file_ && !file_->image.empty());
}

bool ContainerOptions::given(const char* name) const {
  const OptionInfo* option = find_option(name);
  return values_.contains(option) || defaults_.contains(option);
}

std::optional<std::string> ContainerOptions::environment() const {
  const auto found = values_.find(find_option(kEnvironment));
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> ContainerOptions::warnings() const {
  if (wants_container()) return ignored_;
  if (given(kNoContainer)) return {};
  std::vector<std::string> lines;
  for (const auto& [option, value] : values_)
    lines.push_back("ignoring " + spelled(*option) + (option->name == kEnvironment ? ", which names no image," : "") +
                    " because neither --container-image nor --container-name is set");
  return lines;
}

}  // namespace situla
