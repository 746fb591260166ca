#include "common/spec/resolved_environment.hpp"

#include <algorithm>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

// In base64 not longer than one variable may be (128 KiB).
constexpr WireForm kEnvironmentForm{
    .what = "environment", .version = 0x45440002, .most_bytes = size_t{92} << 10U, .nul_in_text = false};
/// What jobs have in their environment that were submitted before mounts had an origin.
constexpr WireForm kFirstForm{
    .what = "environment", .version = 0x45440001, .most_bytes = size_t{64} << 10U, .nul_in_text = false};
struct FirstForm {
  ResolvedEnvironment environment;
  std::vector<std::string> mounts;

  static auto fields(auto& own) {
    auto& now = own.environment;
    return std::tie(now.name, now.image, now.workdir, own.mounts, now.devices, now.variables, now.writable,
                    now.entrypoint, now.warnings);
  }
};
constexpr const char* kNone = "none";

/// Exact repetitions are dropped, as between the entries of one option.
Result<void> add_mounts(const MountOfFile& mount, std::vector<MountOption>& mounts) {
  TRY_ASSIGN(std::vector<MountOption> options, parse_mount_options(mount.entry));
  for (MountOption& option : options) {
    option.origin = mount.origin;
    const bool known = std::any_of(mounts.begin(), mounts.end(), [&](MountOption other) {
      other.origin = option.origin;
      return other == option;
    });
    if (!known) mounts.push_back(std::move(option));
  }
  return {};
}

}  // namespace

Result<void> ResolvedEnvironment::apply(ContainerSpec& spec) const {
  if (!image.empty()) TRY(check_image(image));
  spec.image = image;
  spec.workdir = workdir;
  for (const MountOfFile& mount : mounts) TRY(add_mounts(mount, spec.mounts));
  if (!devices.empty()) {
    TRY_ASSIGN(spec.devices, parse_device_names(join(devices, ",")));
  }
  for (const std::string& variable : variables) {
    const auto parts = cut(variable, '=');
    if (!parts || !is_variable_name(parts->first))
      return fail(ErrorKind::usage, "'" + printable(variable) + "' defines no environment variable");
  }
  spec.variables = variables;
  spec.writable = writable ? Tristate::yes : Tristate::no;
  spec.entrypoint = entrypoint ? Tristate::yes : Tristate::no;
  return {};
}

Result<std::string> ResolvedEnvironment::to_text() const {
  const std::string bytes = to_wire(*this, kEnvironmentForm);
  if (bytes.size() > kEnvironmentForm.most_bytes)
    return fail(Error(ErrorKind::usage, "it comes to more than " + format_size(kEnvironmentForm.most_bytes))
                    .with_code(ErrorCode::environment_file));
  return encode_base64(bytes);
}

Result<ResolvedEnvironment> ResolvedEnvironment::from_text(std::string_view text) {
  const auto bytes = decode_base64(text);
  if (!bytes) return fail(ErrorKind::corrupt, "environment of a wrong form");
  if (auto first = from_wire<FirstForm>(*bytes, kFirstForm)) {
    for (std::string& entry : first->mounts)
      first->environment.mounts.push_back({std::move(entry), "--environment " + first->environment.name});
    return std::move(first->environment);
  }
  return from_wire<ResolvedEnvironment>(*bytes, kEnvironmentForm);
}

void add_to_those_of_file(ContainerSpec& spec, std::vector<MountOption> mounts, std::vector<std::string> devices) {
  std::erase_if(mounts, [&](const MountOption& of_file) {
    return std::any_of(spec.mounts.begin(), spec.mounts.end(),
                       [&](const MountOption& given) { return given.target == of_file.target; });
  });
  spec.mounts.insert(spec.mounts.begin(), mounts.begin(), mounts.end());
  if (!spec.devices.empty() && spec.devices.front() == kNone) return;
  if (!devices.empty() && devices.front() == kNone && !spec.devices.empty()) return;
  for (std::string& device : spec.devices) add_once(devices, std::move(device));
  spec.devices = std::move(devices);
}

}  // namespace situla
