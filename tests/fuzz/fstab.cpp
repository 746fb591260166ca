#include "hooks/mount/fstab.hpp"

#include <string_view>

#include "tests/fuzz/plan_checks.hpp"
#include "tests/fuzz/target.hpp"

namespace {

void add_to_plan(const std::vector<situla::MountStep>& steps) {
  situla::MountPlan plan("/work");
  for (const situla::MountStep& step : steps) (void)plan.add(step);
  check_plan(plan);
}

}  // namespace

using namespace std::string_view_literals;

/// An fstab file of an image, a site or a script.
void situla::fuzz(std::string_view bytes) {
  static const Environment environment = Environment::from_block(
      "ENROOT_ROOTFS=/run/root\0HOME=/home/user\0LINE=tmpfs /x tmpfs\0TWO=/a\n/b\0UP=../..\0"sv);
  if (const auto entries = parse_fstab(bytes, environment, "fstab")) {
    std::vector<MountStep> steps;
    for (const FstabEntry& entry : *entries) {
      if (entry.pass != 0 && entry.pass != -1) std::abort();
      steps.push_back(entry.step);
    }
    add_to_plan(steps);
  }
  for (const int pass : {-1, 0, 1})
    if (const auto steps = parse_literal_fstab(bytes, pass, "fstab")) add_to_plan(*steps);
  if (const auto number = parse_device_number(bytes); number && parse_device_number(to_text(*number)) != number)
    std::abort();
}
