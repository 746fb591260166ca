#include "hooks/scripts/known_scripts.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// A new release is added with what fingerprint() says of its file.
constexpr std::array<KnownScript, 42> kKnown = {{
    {"10-aptfix.sh", BuiltInHook::aptfix, 0xdb8ab73aecafea92},
    {"10-cgroups.sh", BuiltInHook::cgroups, 0x22d9b69293007b49},
    {"10-cgroups.sh", BuiltInHook::cgroups, 0xa248bcb972f94d56},
    {"10-cgroups.sh", BuiltInHook::cgroups, 0x57a0804246ecd12b},
    {"10-cgroups.sh", BuiltInHook::cgroups, 0xed6f9f70ad0ec4c6},
    {"10-devices.sh", BuiltInHook::devices, 0x1ccbe6ca10ecfb29},
    {"10-devices.sh", BuiltInHook::devices, 0x8e731d162da44ed4},
    {"10-devices.sh", BuiltInHook::devices, 0x0c86ea5a7cdc2475},
    {"10-home.sh", BuiltInHook::home, 0x557c48883dc8f5f4},
    {"10-home.sh", BuiltInHook::home, 0xbe76f743afe3162e},
    {"10-localtime.sh", BuiltInHook::localtime, 0x4dabaa704dc5eda4},
    {"10-localtime.sh", BuiltInHook::localtime, 0x74431bed65a7aaad},
    {"10-shadow.sh", BuiltInHook::shadow, 0xec86fb19caf16484},
    {"10-shadow.sh", BuiltInHook::shadow, 0xb9487144e7f09444},
    {"10-shadow.sh", BuiltInHook::shadow, 0xe1884d2da1b04f40},
    {"50-mig-config.sh", BuiltInHook::mig_config, 0xdb1ab5b1c2bd4527},
    {"50-mig-config.sh", BuiltInHook::mig_config, 0x39fb959af03a6d97},
    {"50-sharp.sh", BuiltInHook::sharp, 0x2d8512690a1e1e5b},
    {"50-sharp.sh", BuiltInHook::sharp, 0x384d0aa374858a9e},
    {"50-sharp.sh", BuiltInHook::sharp, 0xf423aadec28e7446},
    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0xbd661db42519fd9d},
    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0xdafe8c33dd9177ec},
    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0x151de41be87d1db9},
    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0x44c2b3f3d4db9a31},
    {"50-slurm-pmi.sh", BuiltInHook::slurm_pmi, 0xfea0be09594f7423},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0xd7e347fc55aed6bb},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0xb339dfdb904ccbb9},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0xc4d262b2252afff0},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0x1d343c14a665439b},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0xbf4ec505ecb7dee5},
    {"50-slurm-pytorch.sh", BuiltInHook::slurm_pytorch, 0xd7bdbc835233e423},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0x669392df048acf56},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0x66cfa35727ecfcbb},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0xa233b879845cf8ee},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0xb3f4c563c46e80ae},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0xda4a8d1e48033b52},
    {"98-nvidia.sh", BuiltInHook::nvidia, 0xc08f11e17216a903},
    {"99-mellanox.sh", BuiltInHook::mellanox, 0xe3081b5edf7867ce},
    {"99-mellanox.sh", BuiltInHook::mellanox, 0x8a8197f21ae102bf},
    {"99-mellanox.sh", BuiltInHook::mellanox, 0x43bb80851486126f},
    {"99-mellanox.sh", BuiltInHook::mellanox, 0x0ea0c04e2cfcbec6},
    {"99-mellanox.sh", BuiltInHook::mellanox, 0xee391366f94b5486},
}};

}  // namespace

std::span<const KnownScript> released_scripts() {
  return kKnown;
}

uint64_t fingerprint(std::string_view content) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3; };
  bool first = true;
  for (std::string_view line : split(content, '\n')) {
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    const std::string_view text = trim(line);
    if (text.empty() || text.front() == '#') continue;
    if (!first) mix('\n');
    first = false;
    for (const char c : line) mix(c);
  }
  return hash;
}

bool is_standard_script(std::string_view name) {
  // What enroot's packages put into hooks.d; its extras are copied there by those who want them.
  const auto is_it = [&](const auto& hook) { return hook.first == name; };
  return name == "99-nvidia.sh" || std::any_of(standard_hooks().begin(), standard_hooks().end(), is_it);
}

std::optional<BuiltInHook> built_in_for(std::string_view name, std::string_view content,
                                        std::span<const KnownScript> known) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const KnownScript& script) {
    return script.name == name && script.fingerprint == fingerprint(content);
  });
  if (found == known.end()) return std::nullopt;
  return found->hook;
}

const std::vector<std::pair<std::string_view, BuiltInHook>>& standard_hooks() {
  static const std::vector<std::pair<std::string_view, BuiltInHook>> kHooks = {
      {"10-aptfix.sh", BuiltInHook::aptfix},       {"10-cgroups.sh", BuiltInHook::cgroups},
      {"10-devices.sh", BuiltInHook::devices},     {"10-home.sh", BuiltInHook::home},
      {"10-localtime.sh", BuiltInHook::localtime}, {"10-shadow.sh", BuiltInHook::shadow},
      {"98-nvidia.sh", BuiltInHook::nvidia},       {"99-mellanox.sh", BuiltInHook::mellanox}};
  return kHooks;
}

}  // namespace situla
