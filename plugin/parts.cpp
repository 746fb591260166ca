#include "plugin/parts.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMostBytes = size_t{96} << 10U;  ///< of the variable: execve(2) takes 128 KiB
constexpr size_t kMostParts = 128;                ///< as Slurm's

/// A word of srun's is one of these, or the beginning of one.
bool names_groups(std::string_view word) {
  constexpr size_t kShortest = 5;
  for (const std::string_view option : {std::string_view("--het-group"), std::string_view("--pack-group")})
    if (word.size() >= kShortest && option.starts_with(word)) return true;
  return false;
}

/// By the number of its group the node knows a part: --het-group, where it is given, has to name 0, 1 and so on, one
/// after the other (0-1 and 2). Words of the tasks' commands that look like it count as well: then it is refused, and
/// not mistaken.
bool is_in_order() {
  constexpr size_t kMostLine = size_t{4} << 20U;
  const auto line = read_file("/proc/self/cmdline", kMostLine);
  if (!line) return false;
  uint64_t next = 0;
  bool follows = false;
  for (const std::string_view word : split(*line, '\0')) {
    const auto parts = cut(word, '=');
    std::string_view list = follows ? word : std::string_view();
    follows = !parts && names_groups(word);
    if (parts && names_groups(parts->first)) list = parts->second;
    for (const std::string_view groups : split_nonempty(list, ',')) {
      const auto range = cut(groups, '-');
      const auto first = parse_unsigned(range ? range->first : groups);
      const auto last = parse_unsigned(range ? range->second : groups);
      if (!first || !last || *first != next || *last < *first || *last >= kMostParts) return false;
      next = *last + 1;
    }
  }
  return true;
}

}  // namespace

Result<void> hand_on_part(ContainerOptions& options, std::vector<std::string>& parts) {
  parts.push_back(options.part());
  options.end_part();
  unsetenv(kPartsVariable);
  if (parts.size() == 1) return {};
  const bool are_alike = std::count(parts.begin(), parts.end(), parts.front()) == std::ssize(parts);
  const std::string all = are_alike ? parts.front() : join(parts, ":");
  if (all.size() > kMostBytes)
    return fail(Error(ErrorKind::usage, "the container options of this srun's parts are too long: " +
                                            format_size(all.size()) + " of at most " + format_size(kMostBytes))
                    .with_code(ErrorCode::option)
                    .with_hint("give each part an srun of its own (--het-group)"));
  if (!are_alike && !is_in_order())
    return fail(Error(ErrorKind::usage, "--het-group: parts with containers of their own have to be for 0, 1 and so on")
                    .with_code(ErrorCode::option)
                    .with_hint("give each part an srun of its own"));
  setenv(kPartsVariable, all.c_str(), 1);
  return {};
}

Result<void> use_own_part(ContainerOptions& options, const ContainerOptions::Lookup& lookup, uint32_t job) {
  const std::string all = lookup(kPartsVariable).value_or("");
  const auto parts = split_nonempty(all, ':');
  if (parts.size() == 1) return options.use_part(parts.front());
  for (size_t i = 0; i < std::min(parts.size(), kMostParts); ++i)
    for (const char* name : {"SLURM_JOB_ID_HET_GROUP_", "SLURM_JOB_ID_PACK_GROUP_"})
      if (lookup(name + std::to_string(i)) == std::to_string(job)) return options.use_part(parts[i]);
  return fail(Error(ErrorKind::failure, "the options of this part of the step did not reach the node")
                  .with_code(ErrorCode::option)
                  .with_hint("give each part an srun of its own"));
}

}  // namespace situla
