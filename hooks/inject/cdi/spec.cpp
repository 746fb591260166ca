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

using Assignment = std::pair<std::string, std::string>;

/// A map, and what the version that the file declares allows in it.
class Reader : public Map {
 public:
  Reader(const Field& field, Version declared, std::initializer_list<std::string_view> known)
      : Map(field, known), version(declared) {}

  /// A field, or a form of it, that older versions do not have.
  void needs(Version needed, const Field& field, std::string_view what = "this") {
    if (version < needed)
      refuse(wrong(field, std::string(what) + " needs cdiVersion " + std::string(kVersions[needed]) +
                              ", and the file declares " + std::string(kVersions[version])));
  }
  void field_needs(Version needed, std::string_view key) {
    if (const auto field = find(key)) needs(needed, *field);
  }
  void refuse_text(std::string_view key, std::string_view text, std::string_view what, std::string_view hint = "") {
    refuse(wrong(child(key), "\"" + printable(text) + "\" " + std::string(what))
               .with_code(ErrorCode::cdi)
               .with_hint(hint));
  }
  std::string required_path(std::string_view key) {
    std::string path = required_text(key);
    if (!path.starts_with('/')) refuse_text(key, path, "is no absolute path");
    return path;
  }

  Version version;
};

Result<Assignment> assignment(const Field& field) {
  const auto parts = cut(field.value.text, '=');
  const bool is_text = field.value.kind == Value::Kind::string || field.value.kind == Value::Kind::word;
  if (!is_text || !parts || parts->first.empty()) return fail(wrong(field, "not NAME=VALUE"));
  return Assignment(parts->first, parts->second);
}

void read_version(Reader& root) {
  const std::string text = root.required_text("cdiVersion");
  const std::string_view plain = std::string_view(text).substr(text.starts_with('v') ? 1 : 0);
  const auto found = std::find(kVersions.begin(), kVersions.end(), plain);
  const auto position = static_cast<size_t>(found - kVersions.begin());
  if (found == kVersions.end())
    root.refuse_text("cdiVersion", text, "is no version of CDI that is known here",
                     "versions 0.3.0 to 1.1.0 can be read");
  else if (position < v0_3)
    root.refuse(wrong(root.child("cdiVersion"), text + " is older than 0.3.0, the first that can be read"));
  else
    root.version = static_cast<Version>(position);
}

Result<DeviceNode> read_node(Version version, const Field& field) {
  Reader map(field, version, {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"});
  map.field_needs(v0_5, "hostPath");
  DeviceNode node;
  node.path = map.required_path("path");
  node.host_path = map.find("hostPath") ? map.required_path("hostPath") : node.path;
  const std::string type = map.text("type");
  if (!type.empty() && type != "b" && type != "c" && type != "u" && type != "p")
    map.refuse_text("type", type, "is none of b, c, u and p");
  node.fifo = type == "p";
  if (!type.empty() && !node.fifo) node.type = type == "b" ? 'b' : 'c';
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  const auto major = map.number("major", kMost);
  const auto minor = map.number("minor", kMost);
  if (node.type != 0 && major.value_or(0) != 0)
    node.number = DeviceNumber{node.type, static_cast<uint32_t>(*major), static_cast<uint32_t>(minor.value_or(0))};
  // No user can give a node away or change it; these only have to be what they should be.
  for (const std::string_view key : {"fileMode", "uid", "gid"}) map.number(key, kMost);
  const std::string permissions = map.text("permissions");
  if (permissions != "none" && permissions.find_first_not_of("rwm") != std::string::npos)
    map.refuse_text("permissions", permissions, "has other letters than rwm");
  return map.finish(std::move(node));
}

Result<Mount> read_mount(Version version, const Field& field) {
  Reader map(field, version, {"hostPath", "containerPath", "options", "type"});
  map.field_needs(v0_4, "type");
  Mount mount;
  mount.host_path = map.required_text("hostPath");
  mount.container_path = map.required_path("containerPath");
  mount.type = map.text("type");
  mount.options = map.texts("options");
  const bool binds = mount.type.empty() || mount.type == "none" || mount.type == "bind";
  if (binds) map.required_path("hostPath");
  return map.finish(std::move(mount));
}

constexpr std::array<std::string_view, 6> kStages = {"prestart",       "createRuntime", "createContainer",
                                                     "startContainer", "poststart",     "poststop"};

Result<Hook> read_hook(Version version, const Field& field) {
  Reader map(field, version, {"hookName", "path", "args", "env", "timeout"});
  Hook hook;
  const std::string stage = map.required_text("hookName");
  const auto found = std::find(kStages.begin(), kStages.end(), stage);
  if (found == kStages.end())
    map.refuse_text("hookName", stage, "is no hook", suggestion(stage, kStages, "hooks"));
  else
    hook.stage = static_cast<HookStage>(found - kStages.begin());
  hook.path = map.required_path("path");
  hook.arguments = map.texts("args");
  for (const auto& [name, value] : map.items<Assignment>("env", assignment))
    hook.environment.push_back(name + "=" + value);
  constexpr uint64_t kDay = 24 * 3600;
  const auto limit = map.number("timeout", kDay);
  if (limit && *limit == 0) map.refuse(wrong(map.child("timeout"), "not greater than 0"));
  hook.limit = std::chrono::seconds(limit.value_or(0));
  return map.finish(std::move(hook));
}

/// true: it is as it should be.
Result<bool> check_intel_rdt(Version version, const Field& field) {
  Reader map(field, version,
             {"closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring", "enableCMT", "enableMBM"});
  for (const std::string_view key : {"schemata", "enableMonitoring"}) map.field_needs(v1_1, key);
  map.needs(v0_7, field);
  for (const std::string_view key : {"l3CacheSchema", "memBwSchema"}) map.text(key);
  const std::string group = map.text("closID");
  const bool usable = group == "/" || (group.size() < 4096 && group != "." && group != ".." &&
                                       group.find_first_of("/\n") == std::string::npos);
  if (!usable) map.refuse_text("closID", group, "is no name of a group");
  map.texts("schemata");
  for (const std::string_view key : {"enableMonitoring", "enableCMT", "enableMBM"}) map.check_boolean(key);
  // 1.1.0 dropped these two; files of 0.7.0 and 1.0.0 have them.
  for (const std::string_view key : {"enableCMT", "enableMBM"})
    if (const auto gone = map.find(key); gone && version >= v1_1)
      map.refuse(wrong(*gone, "unknown field since cdiVersion 1.1.0")
                     .with_code(ErrorCode::cdi)
                     .with_hint("enableMonitoring replaces it"));
  return map.finish(true);
}

/// Its names outside and inside.
Result<Assignment> read_net_device(const Field& field) {
  Map map(field, {"hostInterfaceName", "name"});
  Assignment names;
  names.first = map.required_text("hostInterfaceName");
  names.second = map.required_text("name");
  return map.finish(std::move(names));
}

std::vector<std::string> read_net_devices(Reader& edits) {
  edits.field_needs(v1_1, "netDevices");
  const auto devices = edits.items<Assignment>("netDevices", read_net_device);
  std::vector<std::string> outside;
  for (size_t i = 0; i < devices.size(); ++i) {
    outside.push_back(devices[i].first);
    for (size_t j = 0; j < i; ++j)
      if (devices[i].first == devices[j].first || devices[i].second == devices[j].second)
        edits.refuse(wrong(edits.child("netDevices"),
                           "[" + std::to_string(j) + "] and [" + std::to_string(i) + "] have a name in common"));
  }
  return outside;
}

/// The specification's text and the reference implementation write the name in two ways.
std::vector<uint32_t> read_groups(Reader& edits) {
  std::vector<uint32_t> groups;
  const auto read = [](const Field& field) { return number_of(field, std::numeric_limits<uint32_t>::max()); };
  for (const std::string_view key : {"additionalGids", "additionalGIDs"}) {
    edits.field_needs(v0_7, key);
    for (const uint64_t group : edits.items<uint64_t>(key, read))
      if (group != 0) groups.push_back(static_cast<uint32_t>(group));
  }
  return groups;
}

Result<Edits> read_edits(Version version, const Field& field) {
  Reader map(field, version,
             {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "additionalGIDs", "intelRdt", "netDevices"});
  const auto by = [version](const auto& read) {
    return [&read, version](const Field& item) { return read(version, item); };
  };
  Edits edits;
  edits.environment = map.items<Assignment>("env", assignment);
  edits.nodes = map.items<DeviceNode>("deviceNodes", by(read_node));
  edits.mounts = map.items<Mount>("mounts", by(read_mount));
  edits.hooks = map.items<Hook>("hooks", by(read_hook));
  edits.groups = read_groups(map);
  edits.net_devices = read_net_devices(map);
  if (const auto rdt = map.find("intelRdt")) edits.intel_rdt = map.take(check_intel_rdt(version, *rdt));
  return map.finish(std::move(edits));
}

/// Text for text; nothing is done with it.
void check_annotations(Reader& map) {
  const auto annotations = map.find("annotations");
  if (!annotations) return;
  if (annotations->value.kind != Value::Kind::map) return map.refuse(wrong(*annotations, "not a map"));
  for (const std::string& key : annotations->value.keys)
    if (const auto text = annotations->find(key)) map.take(text_of(*text));
  if (!annotations->value.keys.empty()) map.needs(v0_6, *annotations);
}

bool has_content(const Field& edits) {
  return std::any_of(edits.value.items.begin(), edits.value.items.end(), [](const Value& value) {
    return value.kind != Value::Kind::null && (value.kind != Value::Kind::list || !value.items.empty());
  });
}

Result<Device> read_device(Version version, const Field& field) {
  Reader map(field, version, {"name", "annotations", "containerEdits"});
  Device device;
  device.name = map.required_text("name");
  if (!is_unqualified_device(device.name))
    map.refuse_text("name", device.name, "is no name of a device",
                    "letters, digits and _ - . : between a letter or digit at either end");
  else if (device.name.front() >= '0' && device.name.front() <= '9')
    map.needs(v0_5, map.child("name"), "a name that begins with a digit");
  check_annotations(map);
  const auto edits = map.find("containerEdits");
  if (!edits) map.refuse(wrong(map.child("containerEdits"), "missing"));
  if (edits) device.edits = map.take(read_edits(version, *edits));
  if (edits && !has_content(*edits)) map.refuse(wrong(*edits, "empty"));
  return map.finish(std::move(device));
}

std::string read_kind(Reader& root) {
  std::string kind = root.required_text("kind");
  if (!is_device_kind(kind)) root.refuse_text("kind", kind, "is no kind of device", "kinds look like vendor.com/class");
  if (kind.find('.', kind.find('/')) != std::string::npos) root.needs(v0_6, root.child("kind"), "a class with a dot");
  return kind;
}

}  // namespace

std::string_view to_string(HookStage stage) {
  return kStages[static_cast<size_t>(stage)];
}

Result<Spec> make_spec(const Value& document, const std::string& file) {
  const Field field{document, nullptr, {}, std::nullopt};
  Reader root(field, v1_1, {"cdiVersion", "kind", "annotations", "devices", "containerEdits"});
  read_version(root);
  Spec spec;
  spec.file = file;
  spec.version = kVersions[root.version];
  spec.kind = read_kind(root);
  check_annotations(root);
  if (const auto edits = root.find("containerEdits")) spec.edits = root.take(read_edits(root.version, *edits));
  spec.devices = root.items<Device>("devices", [&](const Field& item) { return read_device(root.version, item); });
  if (spec.devices.empty()) root.refuse(wrong(root.child("devices"), "missing: there has to be one at least"));
  std::vector<std::string_view> names;
  for (const Device& device : spec.devices) names.push_back(device.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    root.refuse(wrong(root.child("devices"), "\"" + std::string(*twice) + "\" stands there twice"));
  return root.finish(std::move(spec));
}

}  // namespace situla::cdi
