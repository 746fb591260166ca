// Is a CDI specification read by the rules, and is everything else refused with its place?
#include "hooks/inject/cdi/spec.hpp"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.hpp"

using namespace situla;

namespace {

const std::string kSpecFiles = SITULA_SOURCE_DIR "/tests/unit/inject/cdi/";

Result<cdi::Spec> read(const std::string& text, bool json = false) {
  const auto document = json ? cdi::read_json(text) : cdi::read_yaml(text);
  if (!document) return fail(document.error());
  return cdi::make_spec(*document, "test.yaml");
}

/// "" when it is accepted.
std::string problem(const std::string& text, bool json = false) {
  const auto spec = read(text, json);
  return spec ? "" : spec.error().message();
}

/// A file with these device edits.
std::string with_edits(const std::string& version, const std::string& edits) {
  return "cdiVersion: " + version + "\nkind: example.com/device\ndevices:\n- name: one\n  containerEdits: " + edits +
         "\n";
}

std::string with_top(const std::string& lines) {
  return lines + "\ndevices:\n- {name: one, containerEdits: {env: [A=1]}}\n";
}

std::string summary(const cdi::Edits& edits) {
  std::string text;
  for (const auto& [name, value] : edits.environment) text += "env " + name + "=" + value + "\n";
  for (const auto& node : edits.nodes) {
    text +=
        "node " + node.path + " " + node.host_path + " " + (node.type == 0 ? '-' : node.type) + (node.fifo ? "p" : "");
    if (node.number) text += " " + std::to_string(node.number->major) + ":" + std::to_string(node.number->minor);
    text += "\n";
  }
  for (const auto& mount : edits.mounts) {
    text += "mount " + mount.type + " " + mount.host_path + " " + mount.container_path;
    for (const auto& option : mount.options) text += " " + option;
    text += "\n";
  }
  for (const auto& hook : edits.hooks) {
    text += "hook " + std::string(cdi::to_string(hook.stage)) + " " + hook.path + " " +
            std::to_string(hook.limit.count()) + " s";
    for (const auto& argument : hook.arguments) text += " " + argument;
    for (const auto& variable : hook.environment) text += " " + variable;
    text += "\n";
  }
  for (const auto group : edits.groups) text += "group " + std::to_string(group) + "\n";
  for (const auto& device : edits.net_devices) text += "net " + device + "\n";
  if (edits.intel_rdt) text += "rdt\n";
  return text;
}

std::string summary(const cdi::Spec& spec) {
  std::string text = spec.version + " " + spec.kind + "\n" + summary(spec.edits);
  for (const auto& device : spec.devices) text += "device " + device.name + "\n" + summary(device.edits);
  return text;
}

}  // namespace

TEST_CASE("YAML and JSON of the same content are the same specification") {
  const std::string name = GENERATE(as<std::string>(), "nvidia", "amd", "intel", "everything");
  CAPTURE(name);
  const auto yaml = read(test::slurp(kSpecFiles + name + ".yaml"));
  const auto json = read(test::slurp(kSpecFiles + name + ".json"), true);
  REQUIRE(yaml);
  REQUIRE(json);
  CHECK(summary(*yaml) == summary(*json));
  CHECK_FALSE(yaml->devices.empty());
}

TEST_CASE("every field of CDI 1.1.0 is read") {
  const auto spec = read(test::slurp(kSpecFiles + "everything.yaml"));
  REQUIRE(spec);
  CHECK(summary(*spec) ==
        "1.1.0 example.com/class.with.dots\n"
        "env SHARED=1\nenv EMPTY=\nenv WITH=a=b\ngroup 44\n"
        "device one\n"
        "env SHARED=2\n"
        "node /dev/one /dev/host-one c 10:16\n"
        "node /run/one.fifo /run/one.fifo -p\n"
        "mount tmpfs tmpfs /scratch nosuid nodev mode=1777 size=64m\n"
        "mount  /opt/one/a/b /opt/a/b ro bind nosymfollow\n"
        "mount  /opt/one /opt rbind rslave noexec idmap\n"
        "mount proc proc /extra/proc\n"
        "hook createContainer /opt/one/bin/late 5 s late --now A=1\n"
        "hook prestart /opt/one/bin/early 0 s early\n"
        "hook poststop /opt/one/bin/bye 0 s\n"
        "group 109\nnet eth5\nrdt\n");
}

TEST_CASE("a file may use what its version has, and nothing newer") {
  struct Feature {
    const char* since;
    std::string (*file)(const std::string& version);
  };
  const std::vector<Feature> features = {
      {"0.3.0", [](const std::string& v) { return with_edits(v, "{env: [A=1]}"); }},
      {"0.4.0",
       [](const std::string& v) { return with_edits(v, "{mounts: [{hostPath: /a, containerPath: /b, type: none}]}"); }},
      {"0.5.0",
       [](const std::string& v) { return with_edits(v, "{deviceNodes: [{path: /dev/a, hostPath: /dev/b}]}"); }},
      {"0.5.0",
       [](const std::string& v) {
         return "cdiVersion: " + v + "\nkind: a.b/c\ndevices: [{name: \"0\", containerEdits: {env: [A=1]}}]";
       }},
      {"0.6.0",
       [](const std::string& v) { return with_top("cdiVersion: " + v + "\nkind: a.b/c\nannotations: {a: b}"); }},
      {"0.6.0", [](const std::string& v) { return with_top("cdiVersion: " + v + "\nkind: a.b/c.d"); }},
      {"0.7.0", [](const std::string& v) { return with_edits(v, "{additionalGids: [44]}"); }},
      {"0.7.0", [](const std::string& v) { return with_edits(v, "{additionalGIDs: [44]}"); }},
      {"0.7.0", [](const std::string& v) { return with_edits(v, "{intelRdt: {closID: a}}"); }},
      {"1.1.0", [](const std::string& v) { return with_edits(v, "{intelRdt: {schemata: [a]}}"); }},
      {"1.1.0", [](const std::string& v) { return with_edits(v, "{intelRdt: {enableMonitoring: true}}"); }},
      {"1.1.0", [](const std::string& v) { return with_edits(v, "{netDevices: [{hostInterfaceName: a, name: b}]}"); }}};
  for (const std::string version : {"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"})
    for (const Feature& feature : features) {
      const std::string file = feature.file(version);
      CAPTURE(file);
      if (version >= feature.since) {
        CHECK(problem(file) == "");
      } else {
        CHECK_THAT(problem(file), Catch::Contains(std::string("needs cdiVersion ") + feature.since +
                                                  ", and the file declares " + version));
      }
    }
}

TEST_CASE("enableCMT and enableMBM are fields until 1.1.0 dropped them") {
  CHECK(problem(with_edits("0.7.0", "{intelRdt: {enableCMT: true, enableMBM: false}}")) == "");
  CHECK(problem(with_edits("1.1.0", "{intelRdt: {enableCMT: true}}")) ==
        "devices[0].containerEdits.intelRdt.enableCMT: unknown field since cdiVersion 1.1.0");
}

TEST_CASE("what is wrong is refused with its place") {
  struct Case {
    std::string file, message;
  };
  const std::string top = "cdiVersion: 0.6.0\nkind: a.b/c\n";
  const std::vector<Case> cases = {
      {"", "empty"},
      {"# nothing\n", "empty"},
      {"just text", "not a map"},
      {"- a\n", "not a map"},
      {"kind: a/b\n", "cdiVersion: missing"},
      {with_top("cdiVersion: 0.2.0\nkind: a.b/c"), "cdiVersion: 0.2.0 is older than 0.3.0"},
      {with_top("cdiVersion: 0.1.0\nkind: a.b/c"), "cdiVersion: 0.1.0 is older than 0.3.0"},
      {with_top("cdiVersion: 1.2.0\nkind: a.b/c"), "cdiVersion: \"1.2.0\" is no version of CDI"},
      {with_top("cdiVersion: 0.5\nkind: a.b/c"), "cdiVersion: \"0.5\" is no version of CDI"},
      {with_top("cdiVersion: 0.5.0"), "kind: missing"},
      {with_top("cdiVersion: 0.5.0\nkind: gpu"), "kind: \"gpu\" is no kind"},
      {with_top("cdiVersion: 0.5.0\nkind: a.b/c/d"), "kind: \"a.b/c/d\" is no kind"},
      {with_top("cdiVersion: 0.5.0\nkind: [a]"), "kind: not a text"},
      {with_top(top + "device: 1"), "device: unknown field"},
      {with_top(top + "annotations: 7"), "annotations: not a map"},
      {with_top(top + "annotations: {a: [b]}"), "annotations.a: not a text"},
      {top, "devices: missing"},
      {top + "devices: []", "devices: missing"},
      {top + "devices: 7", "devices: not a list"},
      {top + "devices: [7]", "devices[0]: not a map"},
      {top + "devices: [{name: a}]", "devices[0].containerEdits: missing"},
      {top + "devices: [{name: a, containerEdits: {}}]", "devices[0].containerEdits: empty"},
      {top + "devices: [{name: a, containerEdits: {env: []}}]", "devices[0].containerEdits: empty"},
      {top + "devices: [{containerEdits: {env: [A=1]}}]", "devices[0].name: missing"},
      {top + "devices: [{name: _a, containerEdits: {env: [A=1]}}]", "devices[0].name: \"_a\" is no name"},
      {top + "devices: [{name: a, containerEdits: {env: [A=1]}}, {name: a, containerEdits: {env: [A=1]}}]",
       "devices: \"a\" stands there twice"},
      {with_edits("0.6.0", "{mount: []}"), "devices[0].containerEdits.mount: unknown field"},
      {with_edits("0.6.0", "{env: [A]}"), "devices[0].containerEdits.env[0]: not NAME=VALUE"},
      {with_edits("0.6.0", "{env: [=A]}"), "devices[0].containerEdits.env[0]: not NAME=VALUE"},
      {with_edits("0.6.0", "{env: [A=1, {B: 1}]}"), "devices[0].containerEdits.env[1]: not NAME=VALUE"},
      {with_edits("0.6.0", "{deviceNodes: [{}]}"), "devices[0].containerEdits.deviceNodes[0].path: missing"},
      {with_edits("0.6.0", "{deviceNodes: [{path: dev/a}]}"), "deviceNodes[0].path: \"dev/a\" is no absolute path"},
      {with_edits("0.6.0", "{deviceNodes: [{path: /dev/a, type: x}]}"), "deviceNodes[0].type: \"x\" is none of"},
      {with_edits("0.6.0", "{deviceNodes: [{path: /dev/a, major: -1}]}"), "deviceNodes[0].major: not a number"},
      {with_edits("0.6.0", "{deviceNodes: [{path: /dev/a, minor: 1.5}]}"), "deviceNodes[0].minor: not a number"},
      {with_edits("0.6.0", "{deviceNodes: [{path: /dev/a, major: 4294967296}]}"), "deviceNodes[0].major: not a number"},
      {with_edits("0.6.0", "{deviceNodes: [{path: /dev/a, permissions: rx}]}"), "deviceNodes[0].permissions: \"rx\""},
      {with_edits("0.6.0", "{mounts: [{containerPath: /a}]}"), "devices[0].containerEdits.mounts[0].hostPath: missing"},
      {with_edits("0.6.0", "{mounts: [{hostPath: /a}]}"), "mounts[0].containerPath: missing"},
      {with_edits("0.6.0", "{mounts: [{hostPath: a, containerPath: /a}]}"), "mounts[0].hostPath: \"a\" is no absolute"},
      {with_edits("0.6.0", "{mounts: [{hostPath: /a, containerPath: a}]}"), "mounts[0].containerPath: \"a\" is no"},
      {with_edits("0.6.0", "{mounts: [{hostPath: /a, containerPath: /b, options: ro}]}"),
       "mounts[0].options: not a list"},
      {with_edits("0.6.0", "{hooks: [{path: /a}]}"), "hooks[0].hookName: missing"},
      {with_edits("0.6.0", "{hooks: [{hookName: start, path: /a}]}"), "hooks[0].hookName: \"start\" is no hook"},
      {with_edits("0.6.0", "{hooks: [{hookName: prestart, path: a}]}"), "hooks[0].path: \"a\" is no absolute path"},
      {with_edits("0.6.0", "{hooks: [{hookName: prestart, path: /a, timeout: 0}]}"), "hooks[0].timeout: not greater"},
      {with_edits("0.6.0", "{hooks: [{hookName: prestart, path: /a, env: [x]}]}"), "hooks[0].env[0]: not NAME=VALUE"},
      {with_edits("0.7.0", "{additionalGids: [video]}"), "additionalGids[0]: not a number"},
      {with_edits("0.7.0", "{additionalGids: [4294967296]}"), "additionalGids[0]: not a number"},
      {with_edits("0.7.0", "{intelRdt: {closID: a/b}}"), "intelRdt.closID: \"a/b\" is no name"},
      {with_edits("0.7.0", "{intelRdt: {enableCMT: 1}}"), "intelRdt.enableCMT: neither true nor false"},
      {with_edits("1.1.0", "{netDevices: [{name: a}]}"), "netDevices[0].hostInterfaceName: missing"},
      {with_edits("1.1.0", "{netDevices: [{hostInterfaceName: a, name: x}, {hostInterfaceName: b, name: x}]}"),
       "netDevices: [0] and [1] have a name in common"},
      // YAML's own troubles
      {top + "devices: [", "line "},
      {top + "kind: a.b/d\n", "line 3: \"kind\" stands there twice"},
      {top + "---\nmore: 1\n", "more than one document"},
      {"a: &x [1]\nb: *x\n", "line 2: an alias"},
      {"a: !!binary aGVsbG8=\n", "line 1: the tag"},
      {"? [a]\n: b\n", "line 1: a key that is no text"},
      {"a: \"\\0\"\n", "line 1: a NUL character"},
      {"a: " + std::string(20, '[') + std::string(20, ']') + "\n", "line 1: nested deeper than 16"},
      {"a: " + std::string(100'000, '['), "line 1: "}};
  for (const Case& wrong : cases) {
    CAPTURE(wrong.file.substr(0, 300));
    CHECK_THAT(problem(wrong.file), Catch::Contains(wrong.message));
  }
}

TEST_CASE("JSON is JSON") {
  CHECK_THAT(problem("{\"cdiVersion\": \"0.6.0\",\n\"kind\" 7}", true), Catch::StartsWith("line 2: not JSON near"));
  CHECK_THAT(problem("{\"a\": 1,", true), Catch::StartsWith("line 1: "));
  CHECK_THAT(problem("cdiVersion: 0.6.0\n", true), Catch::StartsWith("line 1: not JSON"));
  CHECK_THAT(problem("{} {}", true), Catch::StartsWith("line 1: "));
  CHECK(problem("{\"a\": 1, \"a\": 2}", true) == "\"a\" stands there twice");
  CHECK(problem(std::string(100'000, '['), true) == "nested deeper than 16 levels");
  CHECK(problem("", true) != "");
}

TEST_CASE("too many values are refused") {
  std::string json = "[0";
  for (size_t i = 0; i < cdi::kMostValues; ++i) json += ",0";
  CHECK(problem(json + "]", true) == "more than 100000 values");
  std::string keys = "a0: 1\n";
  for (int i = 1; i <= 1024; ++i) keys += "a" + std::to_string(i) + ": 1\n";
  CHECK(problem(keys) == "line 1025: more than 1024 keys");
}

TEST_CASE("an unquoted number is a good name or version") {
  const auto spec = read("cdiVersion: v0.5.0\nkind: a.b/c\ndevices: [{name: 0, containerEdits: {env: [A=1]}}]");
  REQUIRE(spec);
  CHECK(spec->version == "0.5.0");
  CHECK(spec->devices[0].name == "0");
}
