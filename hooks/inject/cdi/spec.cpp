#include "hooks/inject/cdi/spec.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "hooks/inject/cdi/field.hpp"

namespace situla::cdi {
namespace {

/// In order; what a file uses has to exist in the version that it declares.
constexpr std::array<std::string_view, 10> kVersions = {"0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0",
                                                        "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"};
/// Positions in kVersions.
enum Version : size_t { v0_3 = 2, v0_4, v0_5, v0_6, v0_7, v0_8, v1_0, v1_1 };

struct Reader {
  Version version;

  /// A field, or a form of it, that older versions do not have.
  [[nodiscard]] Result<void> needs(Version needed, const Field& field, std::string_view what = "this") const {
    if (version >= needed) return {};
    return fail(wrong(field, std::string(what) + " needs cdiVersion " + std::string(kVersions[needed]) +
                                 ", and the file declares " + std::string(kVersions[version])));
  }
  [[nodiscard]] Result<void> field_needs(Version needed, const Field& map, std::string_view key) const {
    const auto field = map.find(key);
    return field ? needs(needed, *field) : Result<void>();
  }
};

Field child(const Field& map, std::string_view key) {
  static const Value nothing;
  const Value* value = map.value.find(key);
  return {value == nullptr ? nothing : *value, &map, key, std::nullopt};
}

Result<std::string> required_path(const Field& map, std::string_view key) {
  TRY_ASSIGN(std::string path, required_text(map, key));
  if (path.front() != '/') return fail(wrong(child(map, key), "\"" + printable(path) + "\" is no absolute path"));
  return path;
}

Result<std::pair<std::string, std::string>> assignment(const Field& field) {
  const auto parts = cut(field.value.text, '=');
  const bool is_text = field.value.kind == Value::Kind::string || field.value.kind == Value::Kind::word;
  if (!is_text || !parts || parts->first.empty()) return fail(wrong(field, "not NAME=VALUE"));
  return std::pair<std::string, std::string>(parts->first, parts->second);
}

Result<Version> read_version(const Field& root) {
  TRY_ASSIGN(const std::string text, required_text(root, "cdiVersion"));
  const std::string_view plain = std::string_view(text).substr(text.starts_with('v') ? 1 : 0);
  const auto found = std::find(kVersions.begin(), kVersions.end(), plain);
  if (found == kVersions.end())
    return fail(wrong(child(root, "cdiVersion"), "\"" + printable(text) + "\" is no version of CDI that is known here")
                    .with_hint("versions 0.3.0 to 1.1.0 can be read"));
  const auto position = static_cast<size_t>(found - kVersions.begin());
  if (position < v0_3)
    return fail(wrong(child(root, "cdiVersion"), text + " is older than 0.3.0, the first that can be read"));
  return static_cast<Version>(position);
}

Result<DeviceNode> read_node(const Reader& reader, const Field& field) {
  static constexpr std::array<std::string_view, 9> kKnown = {"path",     "hostPath",    "type", "major", "minor",
                                                             "fileMode", "permissions", "uid",  "gid"};
  TRY(check_fields(field, kKnown));
  TRY(reader.field_needs(v0_5, field, "hostPath"));
  DeviceNode node;
  TRY_ASSIGN(node.path, required_path(field, "path"));
  node.host_path = node.path;
  if (field.find("hostPath")) {
    TRY_ASSIGN(node.host_path, required_path(field, "hostPath"));
  }
  TRY_ASSIGN(const std::string type, optional_text(field, "type"));
  if (!type.empty() && type != "b" && type != "c" && type != "u" && type != "p")
    return fail(wrong(child(field, "type"), "\"" + printable(type) + "\" is none of b, c, u and p"));
  node.fifo = type == "p";
  if (!type.empty() && !node.fifo) node.type = type == "b" ? 'b' : 'c';
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  TRY_ASSIGN(const auto major, optional_number(field, "major", kMost));
  TRY_ASSIGN(const auto minor, optional_number(field, "minor", kMost));
  if (node.type != 0 && major.value_or(0) != 0)
    node.number = DeviceNumber{node.type, static_cast<uint32_t>(*major), static_cast<uint32_t>(minor.value_or(0))};
  // No user can give a node away or change it; these only have to be what they should be.
  for (const std::string_view key : {"fileMode", "uid", "gid"}) TRY(optional_number(field, key, kMost));
  TRY_ASSIGN(const std::string permissions, optional_text(field, "permissions"));
  if (permissions != "none" && permissions.find_first_not_of("rwm") != std::string::npos)
    return fail(wrong(child(field, "permissions"), "\"" + printable(permissions) + "\" has other letters than rwm"));
  return node;
}

Result<Mount> read_mount(const Reader& reader, const Field& field) {
  static constexpr std::array<std::string_view, 4> kKnown = {"hostPath", "containerPath", "options", "type"};
  TRY(check_fields(field, kKnown));
  TRY(reader.field_needs(v0_4, field, "type"));
  Mount mount;
  TRY_ASSIGN(mount.host_path, required_text(field, "hostPath"));
  TRY_ASSIGN(mount.container_path, required_path(field, "containerPath"));
  TRY_ASSIGN(mount.type, optional_text(field, "type"));
  TRY_ASSIGN(mount.options, texts(field, "options"));
  const bool binds = mount.type.empty() || mount.type == "none" || mount.type == "bind";
  if (binds) TRY(required_path(field, "hostPath"));
  return mount;
}

constexpr std::array<std::string_view, 6> kStages = {"prestart",       "createRuntime", "createContainer",
                                                     "startContainer", "poststart",     "poststop"};

Result<Hook> read_hook(const Field& field) {
  static constexpr std::array<std::string_view, 5> kKnown = {"hookName", "path", "args", "env", "timeout"};
  TRY(check_fields(field, kKnown));
  Hook hook;
  TRY_ASSIGN(const std::string stage, required_text(field, "hookName"));
  const auto found = std::find(kStages.begin(), kStages.end(), stage);
  if (found == kStages.end())
    return fail(wrong(child(field, "hookName"), "\"" + printable(stage) + "\" is no hook")
                    .with_hint(suggestion(stage, kStages, "hooks")));
  hook.stage = static_cast<HookStage>(found - kStages.begin());
  TRY_ASSIGN(hook.path, required_path(field, "path"));
  TRY_ASSIGN(hook.arguments, texts(field, "args"));
  TRY_ASSIGN(const auto environment, (items<std::pair<std::string, std::string>>(field, "env", assignment)));
  for (const auto& [name, value] : environment) hook.environment.push_back(name + "=" + value);
  constexpr uint64_t kDay = 24 * 3600;
  TRY_ASSIGN(const auto limit, optional_number(field, "timeout", kDay));
  if (limit && *limit == 0) return fail(wrong(child(field, "timeout"), "not greater than 0"));
  hook.limit = std::chrono::seconds(limit.value_or(0));
  return hook;
}

Result<void> check_intel_rdt(const Reader& reader, const Field& field) {
  static constexpr std::array<std::string_view, 7> kKnown = {
      "closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring", "enableCMT", "enableMBM"};
  TRY(check_fields(field, kKnown));
  for (const std::string_view key : {"schemata", "enableMonitoring"}) TRY(reader.field_needs(v1_1, field, key));
  TRY(reader.needs(v0_7, field));
  for (const std::string_view key : {"l3CacheSchema", "memBwSchema"}) TRY(optional_text(field, key));
  TRY_ASSIGN(const std::string group, optional_text(field, "closID"));
  const bool usable = group == "/" || (group.size() < 4096 && group != "." && group != ".." &&
                                       group.find_first_of("/\n") == std::string::npos);
  if (!usable) return fail(wrong(child(field, "closID"), "\"" + printable(group) + "\" is no name of a group"));
  TRY(texts(field, "schemata"));
  for (const std::string_view key : {"enableMonitoring", "enableCMT", "enableMBM"}) TRY(check_boolean(field, key));
  // 1.1.0 dropped these two; files of 0.7.0 and 1.0.0 have them.
  for (const std::string_view key : {"enableCMT", "enableMBM"})
    if (const auto gone = field.find(key); gone && reader.version >= v1_1)
      return fail(wrong(*gone, "unknown field since cdiVersion 1.1.0").with_hint("enableMonitoring replaces it"));
  return {};
}

struct NetDevice {
  std::string outside, inside;
};

Result<NetDevice> read_net_device(const Field& field) {
  static constexpr std::array<std::string_view, 2> kKnown = {"hostInterfaceName", "name"};
  TRY(check_fields(field, kKnown));
  NetDevice device;
  TRY_ASSIGN(device.outside, required_text(field, "hostInterfaceName"));
  TRY_ASSIGN(device.inside, required_text(field, "name"));
  return device;
}

Result<std::vector<std::string>> read_net_devices(const Reader& reader, const Field& edits) {
  TRY(reader.field_needs(v1_1, edits, "netDevices"));
  TRY_ASSIGN(const auto devices, items<NetDevice>(edits, "netDevices", read_net_device));
  std::vector<std::string> outside;
  for (size_t i = 0; i < devices.size(); ++i) {
    outside.push_back(devices[i].outside);
    for (size_t j = 0; j < i; ++j)
      if (devices[i].outside == devices[j].outside || devices[i].inside == devices[j].inside)
        return fail(wrong(child(edits, "netDevices"),
                          "[" + std::to_string(j) + "] and [" + std::to_string(i) + "] have a name in common"));
  }
  return outside;
}

/// The specification's text and the reference implementation write the name in two ways.
Result<std::vector<uint32_t>> read_groups(const Reader& reader, const Field& edits) {
  std::vector<uint32_t> groups;
  for (const std::string_view key : {"additionalGids", "additionalGIDs"}) {
    TRY(reader.field_needs(v0_7, edits, key));
    TRY_ASSIGN(const auto numbers, items<uint64_t>(edits, key, [](const Field& field) {
                 return number(field, std::numeric_limits<uint32_t>::max());
               }));
    for (const uint64_t group : numbers)
      if (group != 0) groups.push_back(static_cast<uint32_t>(group));
  }
  return groups;
}

Result<Edits> read_edits(const Reader& reader, const Field& field) {
  static constexpr std::array<std::string_view, 8> kKnown = {
      "env", "deviceNodes", "mounts", "hooks", "additionalGids", "additionalGIDs", "intelRdt", "netDevices"};
  TRY(check_fields(field, kKnown));
  Edits edits;
  TRY_ASSIGN(edits.environment, (items<std::pair<std::string, std::string>>(field, "env", assignment)));
  TRY_ASSIGN(edits.nodes,
             items<DeviceNode>(field, "deviceNodes", [&](const Field& node) { return read_node(reader, node); }));
  TRY_ASSIGN(edits.mounts,
             items<Mount>(field, "mounts", [&](const Field& mount) { return read_mount(reader, mount); }));
  TRY_ASSIGN(edits.hooks, items<Hook>(field, "hooks", read_hook));
  TRY_ASSIGN(edits.groups, read_groups(reader, field));
  TRY_ASSIGN(edits.net_devices, read_net_devices(reader, field));
  if (const auto rdt = field.find("intelRdt")) {
    TRY(check_intel_rdt(reader, *rdt));
    edits.intel_rdt = true;
  }
  return edits;
}

/// Text for text; nothing is done with it.
Result<void> check_annotations(const Reader& reader, const Field& map) {
  const auto annotations = map.find("annotations");
  if (!annotations) return {};
  if (annotations->value.kind != Value::Kind::map) return fail(wrong(*annotations, "not a map"));
  for (const std::string& key : annotations->value.keys) TRY(optional_text(*annotations, key));
  return annotations->value.keys.empty() ? Result<void>() : reader.needs(v0_6, *annotations);
}

bool has_content(const Field& edits) {
  return std::any_of(edits.value.items.begin(), edits.value.items.end(), [](const Value& value) {
    return value.kind != Value::Kind::null && (value.kind != Value::Kind::list || !value.items.empty());
  });
}

Result<Device> read_device(const Reader& reader, const Field& field) {
  static constexpr std::array<std::string_view, 3> kKnown = {"name", "annotations", "containerEdits"};
  TRY(check_fields(field, kKnown));
  Device device;
  TRY_ASSIGN(device.name, required_text(field, "name"));
  if (!is_unqualified_device(device.name))
    return fail(wrong(child(field, "name"), "\"" + printable(device.name) + "\" is no name of a device")
                    .with_hint("letters, digits and _ - . : between a letter or digit at either end"));
  if (device.name.front() >= '0' && device.name.front() <= '9')
    TRY(reader.needs(v0_5, child(field, "name"), "a name that begins with a digit"));
  TRY(check_annotations(reader, field));
  const auto edits = field.find("containerEdits");
  if (!edits) return fail(wrong(child(field, "containerEdits"), "missing"));
  TRY_ASSIGN(device.edits, read_edits(reader, *edits));
  if (!has_content(*edits)) return fail(wrong(*edits, "empty"));
  return device;
}

Result<std::string> read_kind(const Reader& reader, const Field& root) {
  TRY_ASSIGN(std::string kind, required_text(root, "kind"));
  const Field field = child(root, "kind");
  if (!is_device_kind(kind))
    return fail(
        wrong(field, "\"" + printable(kind) + "\" is no kind of device").with_hint("kinds look like vendor.com/class"));
  if (kind.find('.', kind.find('/')) != std::string::npos) TRY(reader.needs(v0_6, field, "a class with a dot"));
  return kind;
}

}  // namespace

std::string_view to_string(HookStage stage) {
  return kStages[static_cast<size_t>(stage)];
}

Result<Spec> make_spec(const Value& document, const std::string& file) {
  static constexpr std::array<std::string_view, 5> kKnown = {"cdiVersion", "kind", "annotations", "devices",
                                                             "containerEdits"};
  const Field root{document, nullptr, {}, std::nullopt};
  TRY(check_fields(root, kKnown));
  TRY_ASSIGN(const Version version, read_version(root));
  const Reader reader{version};
  Spec spec;
  spec.file = file;
  spec.version = kVersions[version];
  TRY_ASSIGN(spec.kind, read_kind(reader, root));
  TRY(check_annotations(reader, root));
  if (const auto edits = root.find("containerEdits")) {
    TRY_ASSIGN(spec.edits, read_edits(reader, *edits));
  }
  TRY_ASSIGN(spec.devices,
             items<Device>(root, "devices", [&](const Field& field) { return read_device(reader, field); }));
  const Field devices = child(root, "devices");
  if (spec.devices.empty()) return fail(wrong(devices, "missing: there has to be one at least"));
  std::vector<std::string_view> names;
  for (size_t i = 0; i < spec.devices.size(); ++i) names.push_back(spec.devices[i].name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    return fail(wrong(devices, "\"" + std::string(*twice) + "\" stands there twice"));
  return spec;
}

}  // namespace situla::cdi
