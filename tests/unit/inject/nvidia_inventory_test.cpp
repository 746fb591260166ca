// What is found on which machine? Each file of inventories/ is one case: lines that describe it, "---", and what is
// found. SITULA_UPDATE_INVENTORIES=1 writes that into the files, and fails where it changed them; review with git diff.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <sstream>

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../support/as_user.hpp"
#include "../../support/memory_log.hpp"
#include "fake_machine.hpp"
#include <catch2/catch.hpp>

#include "common/base/text.hpp"
#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/inventory/inventory_fields.hpp"

namespace fs = std::filesystem;
using namespace situla;
using namespace situla::nvidia;
using situla::test::FakeMachine;
using situla::test::MemoryLog;

namespace {

constexpr const char* kSeparator = "---\n";

std::string names(CapabilitySet set) {
  constexpr std::array<const char*, 7> kNames = {"utility", "compute", "video",   "graphics",
                                                 "display", "ngx",     "compat32"};
  std::vector<std::string> found;
  for (size_t bit = 0; bit < kNames.size(); ++bit)
    if ((set & (1U << bit)) != 0) found.emplace_back(kNames[bit]);
  return " (" + (found.empty() ? std::string("always") : join(found, ", ")) + ")";
}

void show(std::ostream& out, const std::string& what, const std::optional<Node>& node) {
  if (node) out << what << " " << node->path << " " << to_text(node->number) << "\n";
}
void show(std::ostream& out, const std::string& what, const std::vector<Node>& nodes) {
  for (const Node& node : nodes) show(out, what, std::optional(node));
}

void show_gpus(std::ostream& out, const Inventory& all) {
  for (const Gpu& gpu : all.gpus) {
    out << "gpu " << gpu.bus_id << " " << gpu.uuid << " " << gpu.model << ", brand " << gpu.brand << ", architecture "
        << gpu.architecture << (gpu.mig_enabled ? ", MIG" : "") << "\n";
    show(out, "  node", std::optional(gpu.node));
    show(out, "  graphics", gpu.graphics_nodes);
    for (const MigDevice& mig : gpu.mig) {
      out << "  mig " << mig.index << " gi" << mig.gpu_instance << " ci" << mig.compute_instance << " " << mig.uuid
          << (mig.graphics ? " graphics" : "") << "\n";
      if (!mig.gpu_instance_file.empty())
        out << "    files " << mig.gpu_instance_file << " " << mig.compute_instance_file << "\n";
      show(out, "    node", mig.gpu_instance_node);
      show(out, "    node", mig.compute_instance_node);
    }
  }
  const ControlNodes& nodes = all.nodes;
  show(out, "control", nodes.control);
  show(out, "uvm", nodes.uvm);
  show(out, "uvm tools", nodes.uvm_tools);
  show(out, "modeset", nodes.modeset);
  show(out, "gdrdrv", nodes.gdrdrv);
  show(out, "gds", nodes.gds);
  show(out, "nvswitch", nodes.nvswitch);
  show(out, "infiniband", nodes.infiniband);
  show(out, "imex", nodes.imex_channels);
  show(out, "mig config", nodes.mig_config);
  show(out, "mig monitor", nodes.mig_monitor);
}

void show(std::ostream& out, const std::string& what, const std::vector<File>& files) {
  for (const File& file : files)
    out << what << " " << file.path << " on " << file.target << names(file.capabilities) << "\n";
}

void show_files(std::ostream& out, const Inventory& all) {
  for (const Library& library : all.libraries) {
    out << (library.is_32bit ? "library32 " : "library ") << library.path << " as " << library.soname;
    for (const std::string& link : library.other_links) out << ", " << link;
    out << (library.subdirectory.empty() ? "" : " in " + library.subdirectory) << names(library.capabilities) << "\n";
  }
  for (const File& link : all.links)
    out << "link " << link.path << " -> " << link.target << names(link.capabilities) << "\n";
  show(out, "program", all.binaries);
  show(out, "firmware", all.firmware);
  show(out, "socket", all.sockets);
  show(out, "configuration", all.configuration);
}

/// "machine OPTIONS" first; "nvml mock|old|none"; "answer LINE" for the mock; "write FILE TEXT", "remove FILE"; "show
/// gpus|files".
class Case {
 public:
  explicit Case(const std::string& text) {
    for (const std::string_view line : split_nonempty(text, '\n')) {
      const auto parts = cut(line, ' ');
      REQUIRE(parts);
      const std::string rest(parts->second);
      if (parts->first == "show") show_files_ = rest == "files";
      if (parts->first == "nvml") nvml_ = rest;
      if (parts->first == "machine") options_ = rest;
      if (parts->first != "show" && parts->first != "nvml" && parts->first != "machine")
        changes_.emplace_back(parts->first, rest);
    }
  }

  [[nodiscard]] std::string run() const {
    const std::string library = nvml_ == "mock" ? SITULA_MOCK_NVML : nvml_ == "old" ? SITULA_MOCK_NVML_OLD : "";
    const FakeMachine machine("--devices files " + options_ + (library.empty() ? "" : " --nvml " + library));
    for (const auto& [what, rest] : changes_) change(machine, what, rest);
    MemoryLog log;
    // A library that hangs shall not take long; any other has time on a busy machine.
    const std::chrono::milliseconds limit(hangs() ? 1500 : 60000);
    const auto begin = std::chrono::steady_clock::now();
    const auto found = gather(machine.roots(), {SITULA_NVML_PROGRAM, limit}, log);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));
    std::ostringstream out;
    for (const auto& message : log.messages)
      if (message.level >= LogLevel::warning) out << "warning: " << message.text << "\n";
    if (found) {
      out << "driver " << found->driver_version << ", CUDA " << found->cuda_version
          << (found->from_nvml ? ", from NVML" : ", from /proc") << "\n";
      show_files_ ? show_files(out, *found) : show_gpus(out, *found);
      check_round_trip(*found);
    } else {
      out << "error: " << found.error().text() << "\n";
    }
    return without(out.str(), machine.path());
  }

 private:
  [[nodiscard]] bool hangs() const {
    return std::any_of(changes_.begin(), changes_.end(),
                       [](const auto& change) { return change.second.starts_with("hang "); });
  }

  static void change(const FakeMachine& machine, const std::string& what, const std::string& rest) {
    if (what == "answer") return machine.append("etc/mock-nvml.conf", rest + "\n");
    if (what == "remove") return machine.remove(rest);
    REQUIRE(what == "write");
    const auto parts = cut(rest, ' ');
    machine.write(std::string(parts ? parts->first : rest), parts ? std::string(parts->second) + "\n" : "");
  }
  static void check_round_trip(const Inventory& inventory) {
    const std::string document = serialize({1, {}, inventory});
    const auto again = parse_inventory(document);
    REQUIRE(again);
    CHECK(serialize(*again) == document);
  }
  static std::string without(std::string text, const std::string& path) {
    for (size_t at = 0; (at = text.find(path)) != std::string::npos;) text.replace(at, path.size(), "ROOT");
    return text;
  }

  std::string options_, nvml_ = "mock";
  std::vector<std::pair<std::string, std::string>> changes_;
  bool show_files_ = false;
};

}  // namespace

TEST_CASE("inventories of many machines") {
  const bool update = std::getenv("SITULA_UPDATE_INVENTORIES") != nullptr;
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(SITULA_SOURCE_DIR "/tests/unit/inject/inventories")) {
    const std::string file = entry.path().string(), text = test::slurp(file);
    const size_t at = text.find(kSeparator);
    const std::string head = text.substr(0, at);
    const std::string found = head + kSeparator + Case(head).run();
    INFO(file);
    CHECK(found == text);
    if (update) std::ofstream(file) << found;
    ++count;
  }
  CHECK(count >= 15);
}

TEST_CASE("numbers of nodes are those of the machine's own devices, and others' are left out") {
  if (geteuid() != 0) return;
  // Its proc and dev stand in for the machine's own, for which device_path is "/".
  const FakeMachine machine("--gpus 2 --devices real");
  HostRoots roots = machine.roots();
  roots.device_path = "/";
  fs::remove(machine / "dev/nvidia1");
  REQUIRE(mknod((machine / "dev/nvidia1").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0);
  fs::remove(machine / "dev/nvidia-uvm");
  machine.write("dev/nvidia-uvm", "");
  MemoryLog log;
  const auto found = gather(roots, {}, log);
  REQUIRE(found);
  REQUIRE(found->gpus.size() == 1);
  CHECK(found->gpus[0].minor == 0);
  CHECK_FALSE(found->nodes.uvm);
  CHECK(found->nodes.uvm_tools);
  CHECK(log.count(LogLevel::warning, "/dev/nvidia1 is left out: it is c 1:3, not c 195:1") == 1);
  CHECK(log.count(LogLevel::warning, "/dev/nvidia-uvm is left out: it is no character device, not c 506:0") == 1);
}

TEST_CASE("the management library is loaded where it can do no harm") {
  const FakeMachine machine("--devices files --nvml " SITULA_MOCK_NVML);
  machine.append("etc/mock-nvml.conf", "driver self\n");
  const std::string library = machine / "usr/lib64/libnvidia-ml.so.1";
  fs::create_directories(fs::path(library).parent_path());
  fs::copy_file(SITULA_MOCK_NVML, library);
  const uid_t uid = geteuid() == 0 ? 65534 : geteuid();
  const std::string rights = " caps 0 new privileges 0 variables 0 descriptors 3";
  const auto answer = query_nvml(SITULA_NVML_PROGRAM, library);
  REQUIRE(answer);
  CHECK(answer->driver_version == "uid " + std::to_string(uid) + rights);
  // As a builder: uid 0 of a user namespace in which it has every capability.
  CHECK(test::in_user_namespace(
            [&]() -> Result<void> {
              TRY_ASSIGN(const auto inside, query_nvml(SITULA_NVML_PROGRAM, library));
              EXPECT(inside.driver_version == "uid 0" + rights);
              return {};
            },
            true)
            .empty());
}

TEST_CASE("an answer of the management library is strict") {
  test::TempDir directory;
  const auto ask = [&](const std::string& script, std::chrono::seconds limit = std::chrono::seconds(30)) {
    const std::string program = directory.write("program", "#!/bin/sh\n" + script);
    fs::permissions(program, fs::perms(0755));
    const auto answer = query_nvml(program, "/lib", limit);
    return answer ? std::string("an answer") : answer.error().message();
  };
  CHECK(ask("exit 3") == "ask NVIDIA's management library: situla-nvml exited with return code 3");
  CHECK(ask("kill -SEGV $$") == "ask NVIDIA's management library: situla-nvml was killed by SIGSEGV");
  CHECK(ask("echo '{'") == "read the answer of NVIDIA's management library: not JSON");
  CHECK(ask("echo '{}'") == "read the answer of NVIDIA's management library: error is missing");
  CHECK(ask("echo '{\"error\": \"no\"}'") == "read the answer of NVIDIA's management library: answer is missing");
  CHECK(ask("yes") == "read the answer of NVIDIA's management library: too long");
  CHECK(ask("exec >&-; sleep 100", std::chrono::seconds(1)) ==
        "wait for NVIDIA's management library: it does not answer");
}

TEST_CASE("an inventory that is not one is refused, and it is said where") {
  Inventory small;
  small.driver_version = "1.2";
  small.gpus.resize(1);
  small.gpus[0].node.path = "/dev/nvidia0";
  small.libraries.push_back({"/usr/lib64/libcuda.so.1.2", "libcuda.so.1", {}, "", kCompute, false});
  const std::string good = serialize({1, {"key"}, small});
  REQUIRE(parse_inventory(good));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    const auto parsed = parse_inventory(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().kind() == ErrorKind::corrupt);
    return parsed.error().message();
  };
  CHECK(refused("{", "[") == "read the inventory: not JSON");
  CHECK(refused("\"version\": 1", "\"version\": 2") == "read the inventory: a version that this program does not know");
  CHECK(refused("\"version\": 1,", "") == "read the inventory: version is missing");
  CHECK(refused("\"minor\": 0", "\"minor\": -1") ==
        "read the inventory: inventory.gpus[0].minor is not a number, or too large");
  CHECK(refused("\"minor\": 0", "\"minor\": 4294967296") ==
        "read the inventory: inventory.gpus[0].minor is not a number, or too large");
  CHECK(refused("\"capabilities\": 2", "\"capabilities\": 256") ==
        "read the inventory: inventory.libraries[0].capabilities is not a number, or too large");
  CHECK(refused("\"c 0:0\"", "\"c 0:0:1\"") == "read the inventory: number is none of a device: c 0:0:1");
  CHECK(refused("\"mig_enabled\": false", "\"mig_enabled\": 0") ==
        "read the inventory: inventory.gpus[0].mig_enabled is neither true nor false");
  CHECK(refused("\"mig\": []", "\"mig\": {}") == "read the inventory: inventory.gpus[0].mig is no list");
  CHECK(refused("\"uuid\": \"\"", "\"uuid\": 5") == "read the inventory: inventory.gpus[0].uuid is no text");
  CHECK(refused("\"uuid\": \"\"", "\"uuid\": \"\", \"more\": 1") ==
        "read the inventory: inventory.gpus[0]. has unknown fields");
  CHECK(refused("/usr/lib64/libcuda", "/usr/../libcuda") ==
        "read the inventory: inventory.libraries[0].path is no path");
  CHECK(refused("/usr/lib64/libcuda", "/usr\\n/libcuda") ==
        "read the inventory: inventory.libraries[0].path is no path");
  CHECK_FALSE(parse_inventory(""));
  CHECK_FALSE(parse_inventory("null"));
  CHECK_FALSE(parse_inventory(std::string(1 << 16U, '[')));
}
