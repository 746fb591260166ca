#include "hooks/inject/gpu/request.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"

namespace situla::gpu {
namespace {

/// Slurm says "NoDevFiles" of GPUs that have no file.
bool gives_gpus(const Environment& host, std::string_view variable) {
  const std::string_view value = trim(host.get(variable).value_or(""));
  return !variable.empty() && !value.empty() && value != "NoDevFiles";
}

bool given_by_slurm(const Vendor& vendor, const Environment& host) {
  if (!vendor.by_slurm) return false;
  const auto& own = vendor.runtime_variables;
  return gives_gpus(host, "SLURM_STEP_GPUS") || gives_gpus(host, "SLURM_JOB_GPUS") ||
         std::any_of(own.begin(), own.end(), [&](std::string_view variable) { return gives_gpus(host, variable); });
}

Result<void> parse_devices(const Vendor& vendor, std::string_view value, Request& request) {
  const std::string variable(vendor.variable);
  for (const std::string_view word : list_items(value)) {
    // No vendor's own name holds a "=", and every CDI name does.
    auto& names = word.find('=') == std::string_view::npos ? request.devices : request.cdi_names;
    if (&names == &request.cdi_names && !is_device_name(std::string(word)))
      return fail(Error(ErrorKind::usage, variable + ": " + printable(word) + ": no name of a device")
                      .with_code(ErrorCode::gpu_request)
                      .with_hint("CDI names are VENDOR/CLASS=NAME, such as " + std::string(vendor.kind) + "=0"));
    if (std::find(names.begin(), names.end(), word) == names.end()) names.emplace_back(word);
  }
  if (!request.devices.empty() && !request.cdi_names.empty())
    return fail(Error(ErrorKind::usage, variable + ": " + printable(request.devices.front()) + " and " +
                                            printable(request.cdi_names.front()) + " cannot be asked for together")
                    .with_code(ErrorCode::gpu_request)
                    .with_hint("name all GPUs by CDI names, or none"));
  return {};
}

}  // namespace

std::vector<std::string_view> list_items(std::string_view list) {
  std::vector<std::string_view> items;
  for (const std::string_view piece : split(list, ','))
    if (const std::string_view item = trim(piece); !item.empty()) items.push_back(item);
  return items;
}

bool is_of_kind(std::string_view name, const Vendor& vendor) {
  return name.starts_with(vendor.kind) && name.substr(vendor.kind.size()).starts_with('=');
}

Result<Request> parse_request(const Vendor& vendor, const Environment& host, const Environment& container) {
  Request request;
  for (const auto& [environment, asker] : {std::pair(&host, Asker::job), std::pair(&container, Asker::image)}) {
    const auto value = vendor.variable.empty() ? std::nullopt : environment->get(vendor.variable);
    if (!value) continue;
    const std::string_view devices = trim(*value);
    const bool is_void = devices.empty() || devices == "void";
    request.refused = asker == Asker::job && (is_void || devices == "none");
    if (is_void) return request;
    request.asker = asker;
    if (devices != "none") TRY(parse_devices(vendor, devices, request));
    return request;
  }
  if (!given_by_slurm(vendor, host)) return request;
  request.asker = Asker::slurm;
  request.devices = {"all"};
  return request;
}

}  // namespace situla::gpu
