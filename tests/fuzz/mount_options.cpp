#include <string_view>

#include "common/spec/mount_option.hpp"
#include "hooks/mount/fstab.hpp"
#include "tests/fuzz/plan_checks.hpp"
#include "tests/fuzz/target.hpp"

using namespace std::string_view_literals;

/// The value of --container-mounts, and what its entries mean where the job runs.
void situla::fuzz(std::string_view bytes) {
  const auto options = parse_mount_options(bytes);
  if (!options) return;
  static const Environment environment = Environment::from_block(
      "HOME=/home/user\0HERE=./here\0EMPTY=\0LIST=/a,/b:ro\0UP=/../..\0FLAGS=ro+x-create=dir\0"sv);
  MountPlan plan("/work");
  for (const MountOption& option : *options) {
    if (option.kind == MountOption::Kind::script) std::abort();
    if (auto step = step_from_option(option, environment)) (void)plan.add(std::move(*step));
  }
  check_plan(plan);
}
