#include "hooks/inject/drm/selection.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"

namespace situla::drm {
namespace {

/// "2" or "0-3"; nullopt for everything else. Both ends included.
std::optional<std::pair<uint64_t, uint64_t>> parse_range(std::string_view text) {
  const auto ends = cut(text, '-');
  const auto first = parse_unsigned(ends ? ends->first : text), last = ends ? parse_unsigned(ends->second) : first;
  if (!first || !last || *first > *last) return std::nullopt;
  return std::pair(*first, *last);
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// "GPU-0123..." and "0x0123..." are one id.
std::string id_digits(const std::string& lower) {
  for (const std::string_view prefix : {"gpu-", "0x"})
    if (lower.starts_with(prefix)) return lower.substr(prefix.size());
  return "";
}

bool is_named(const RenderGpu& gpu, const std::string& name) {
  const std::string lower = to_lower(name), id = id_digits(lower);
  return lower == gpu.address || name == base_name(gpu.render.path) ||
         (!id.empty() && id == id_digits(to_lower(gpu.unique_id)));
}

std::string list(const Choice& usable) {
  std::vector<std::string> items;
  for (size_t i = 0; i < usable.size(); ++i)
    items.push_back(std::to_string(i) + " = " + printable(usable[i]->address) + " (" +
                    base_name(usable[i]->render.path) + ")");
  return join(items, ", ");
}

Error unknown_device(const std::string& name, const Choice& usable) {
  return Error(ErrorKind::usage, "device error: " + printable(name) + ": unknown device")
      .with_code(ErrorCode::gpu_request)
      .with_hint(usable.empty() ? "this job may use no GPU of this node; ask Slurm for some (--gpus, --gres)"
                                : "this job may use " + list(usable) + "; a job's GPUs are numbered from 0");
}

}  // namespace

AccessCheck kernel_access(const RootDir& devices) {
  return [&devices](const std::string& path) {
    const auto fd = devices.resolve(path);
    if (!fd) return Access::missing;
    if (access(fd_path(fd->get()).c_str(), R_OK | W_OK) == 0) return Access::granted;
    return errno == EPERM ? Access::forbidden : Access::denied;
  };
}

Usable usable_gpus(const Choice& of_vendor, const AccessCheck& access) {
  Usable usable;
  for (const RenderGpu* gpu : of_vendor) {
    if (gpu->card && access(gpu->card->path) == Access::forbidden) continue;
    const Access render = access(gpu->render.path);
    if (render == Access::granted) usable.gpus.push_back(gpu);
    if (render == Access::denied) ++usable.denied;
  }
  return usable;
}

Result<Choice> select_gpus(const std::vector<std::string>& names, const Choice& usable) {
  std::vector<bool> picked(usable.size());
  for (const std::string& name : names) {
    if (to_lower(name) == "all") return usable;
    bool found = false;
    if (const auto range = parse_range(name); range && range->second < usable.size()) {
      found = true;
      for (uint64_t i = range->first; i <= range->second; ++i) picked[i] = true;
    }
    for (size_t i = 0; i < usable.size(); ++i) {
      if (!is_named(*usable[i], name)) continue;
      found = picked[i] = true;
    }
    if (!found) return fail(unknown_device(name, usable));
  }
  Choice chosen;
  for (size_t i = 0; i < usable.size(); ++i)
    if (picked[i]) chosen.push_back(usable[i]);
  return chosen;
}

}  // namespace situla::drm
