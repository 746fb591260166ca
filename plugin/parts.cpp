#include "plugin/parts.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

/// --het-group of each part, as it was typed: 0,1 : 2 are three. Where it is not given, the parts are 0, 1 and so on.
std::vector<std::string> groups_of_parts() {
  constexpr size_t kMost = size_t{1} << 20U;
  std::vector<std::string> groups;
  const std::string line = read_file("/proc/self/cmdline", kMost).value_or("");
  bool follows = false;
  for (const std::string_view word : split(line, '\0')) {
    std::string_view list = follows ? word : std::string_view();
    follows = word == "--het-group" || word == "--pack-group";
    if (word.starts_with("--het-group=") || word.starts_with("--pack-group=")) list = word.substr(word.find('=') + 1);
    for (const std::string_view group : split_nonempty(list, ',')) groups.emplace_back(group);
  }
  return groups;
}

/// By the number of a part's group the node knows it.
bool is_in_order(const std::vector<std::string>& groups) {
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i] != std::to_string(i)) return false;
  return true;
}

}  // namespace

Result<void> hand_on_part(ContainerOptions& options, std::vector<std::string>& parts) {
  TRY_ASSIGN(std::string part, options.part());
  parts.push_back(std::move(part));
  options.end_part();
  if (std::count(parts.begin(), parts.end(), parts.front()) == std::ssize(parts)) {
    unsetenv(kPartsVariable);
    return {};
  }
  if (!is_in_order(groups_of_parts()))
    return fail(Error(ErrorKind::usage, "--het-group: parts with containers of their own have to be for 0, 1 and so on")
                    .with_code(ErrorCode::option)
                    .with_hint("give each part an srun of its own"));
  setenv(kPartsVariable, join(parts, ":").c_str(), 1);
  return {};
}

Result<void> use_own_part(ContainerOptions& options, const ContainerOptions::Lookup& lookup, uint32_t job) {
  const std::string all = lookup(kPartsVariable).value_or("");
  const auto parts = split_nonempty(all, ':');
  for (size_t i = 0; i < parts.size(); ++i)
    for (const char* name : {"SLURM_JOB_ID_HET_GROUP_", "SLURM_JOB_ID_PACK_GROUP_"})
      if (lookup(name + std::to_string(i)) == std::to_string(job)) return options.use_part(parts[i]);
  return fail(Error(ErrorKind::failure, "the options of this part of the step did not reach the node")
                  .with_code(ErrorCode::option)
                  .with_hint("give each part an srun of its own"));
}

}  // namespace situla
