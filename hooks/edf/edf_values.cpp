#include "hooks/edf/edf_values.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/mount_option.hpp"

namespace situla::edf {
namespace {

using Text = Said<std::string>;

template <typename T>
Result<T> at(const Text& said, Result<T> result) {
  if (result) return result;
  return fail(std::move(result).error().with_context(said.where));
}

Result<void> expand(Text& said, const EdfPlaces& places) {
  TRY_ASSIGN(said.value, at(said, expand_references(said.value, places.lookup())));
  return {};
}

/// The node expands $NAME in mounts, too; here all of it is done.
std::string without_references(const std::string& text) {
  std::string literal;
  for (const char c : text) literal += c == '$' ? std::string("\\$") : std::string(1, c);
  return literal;
}

/// SOURCE:DESTINATION[:FLAGS] as an entry of --container-mounts.
Result<std::string> mount_entry(const std::string& written, const EdfPlaces& places) {
  std::vector<std::string> fields;
  std::string_view rest = written;
  if (is_registry_image(written)) {
    const auto parts = cut_mount_source(written);
    if (!parts) return fail(parse_mount_entry(written).error());
    fields.emplace_back(parts->first);
    rest = parts->second;
  }
  for (auto parts = cut(rest, ':'); parts && fields.size() < 2; parts = cut(rest, ':')) {
    fields.push_back(places.absolute(std::string(parts->first)));
    rest = parts->second;
  }
  fields.push_back(fields.size() < 2 ? places.absolute(std::string(rest)) : std::string(rest));
  for (size_t i = 0; i < fields.size() && i < 2; ++i)
    if (fields[i].find(',') != std::string::npos)
      return fail(ErrorKind::unsupported, "mount '" + printable(written) + "': a comma in a path");
  if (fields.size() > 2) std::replace(fields[2].begin(), fields[2].end(), ',', '+');
  std::string entry = without_references(join(fields, ":"));
  TRY(parse_mount_options(entry));
  return entry;
}

Result<void> settle_mount(Text& mount, const EdfPlaces& places) {
  TRY(expand(mount, places));
  TRY_ASSIGN(mount.value, at(mount, mount_entry(mount.value, places)));
  return {};
}

Result<void> settle_devices(EdfFile& file, const EdfPlaces& places) {
  std::vector<Text> names;
  for (Text& device : file.devices) {
    TRY(expand(device, places));
    if (device.value.starts_with('/')) {
      device.value += ":" + device.value;
      TRY(settle_mount(device, places));
      file.device_mounts.push_back(std::move(device));
      continue;
    }
    TRY(at(device, parse_device_names(device.value)));
    names.push_back(std::move(device));
  }
  for (const Text& device : names)
    if (device.value == "none" && names.size() > 1)
      return fail(ErrorKind::usage, device.where + ": the device \"none\" stands alone");
  file.devices = std::move(names);
  return {};
}

/// What Situla does of a hook of CSCS's container engine, by its part of "com.hooks.NAME.enabled".
struct KnownHook {
  std::string_view name, instead;
};
constexpr std::array<KnownHook, 5> kHooks = {
    {{"aws_ofi_nccl",
      "NCCL's plugin for libfabric is not put into the container; a CDI specification of the site can "
      "(devices)"},
     {"cxi", "the site decides, by fabric in situla.toml, whether the host's libfabric comes into containers"},
     {"dcgm", "the host's DCGM is not put into the container; mounts can"},
     {"nvidia_cuda_mps", "an MPS daemon that runs on the node is reached, but none is started"},
     {"ssh", "no SSH server is started in the container; situla attach and situla ssh get into a running job"}}};

struct Hook {
  std::string name, where, text;
  bool off = false;
};

/// The lines of a hook's annotations, told as one.
Hook hook_of(const std::string& annotation, const Text& said) {
  constexpr std::string_view kHookPrefix = "com.hooks.";
  if (!annotation.starts_with(kHookPrefix)) return {annotation, said.where, "not known here, and ignored", false};
  const auto parts = cut(std::string_view(annotation).substr(kHookPrefix.size()), '.');
  const std::string name(parts ? parts->first : std::string_view(annotation).substr(kHookPrefix.size()));
  const auto* known = std::find_if(kHooks.begin(), kHooks.end(), [&](const auto& hook) { return hook.name == name; });
  return {std::string(kHookPrefix) + name, said.where,
          known == kHooks.end() ? "not known here, and ignored" : std::string(known->instead),
          parts && parts->second == "enabled" && said.value == "false"};
}

}  // namespace

Result<void> settle_values(EdfFile& file, const EdfPlaces& places) {
  if (file.image) {
    TRY(expand(*file.image, places));
    file.image->value = places.absolute(file.image->value);
    if (!file.image->value.empty()) TRY(at(*file.image, check_image(file.image->value)));
  }
  if (file.workdir) {
    TRY(expand(*file.workdir, places));
    file.workdir->value = expand_home(places.absolute(file.workdir->value), places.variables);
  }
  for (Text& mount : file.mounts) TRY(settle_mount(mount, places));
  TRY(settle_devices(file, places));
  const auto any_value = [](std::string_view) { return std::optional<std::string>("x"); };
  for (auto& [name, value] : file.env) TRY(at(value, expand_references(value.value, any_value)));
  for (auto& [name, value] : file.annotations) TRY(expand(value, places));
  return {};
}

std::vector<std::string> unheeded(const EdfFile& file) {
  std::vector<Hook> hooks;
  for (const auto& [annotation, said] : file.annotations) {
    Hook hook = hook_of(annotation, said);
    const auto same =
        std::find_if(hooks.begin(), hooks.end(), [&](const Hook& each) { return each.name == hook.name; });
    if (same == hooks.end())
      hooks.push_back(std::move(hook));
    else
      same->off = same->off || hook.off;
  }
  std::vector<std::string> lines;
  for (const Hook& hook : hooks)
    if (!hook.off) lines.push_back(hook.where + ": annotation " + hook.name + ": " + hook.text);
  for (const Text& key : file.ignored)
    lines.push_back(key.where + ": " + key.value + " is another container engine's, and ignored");
  return lines;
}

}  // namespace situla::edf
