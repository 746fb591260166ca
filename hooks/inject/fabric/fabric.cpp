#include "hooks/inject/fabric/fabric.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/fd_path.hpp"
#include "hooks/inject/fabric/closure.hpp"
#include "hooks/inject/sysfs/sysfs.hpp"

namespace situla::fabric {
namespace {

struct Row {
  Fabric part;
  std::vector<std::string> libraries;  ///< SONAMEs; without the first there is nothing of it
  FileNumbers numbers = FileNumbers::compare;
};

/// In the order of the enumeration: what comes later needs what comes before.
const std::array<Row, 4>& table() {
  static const std::array<Row, 4> kTable = {{
      {Fabric::cxi, {"libcxi.so.1"}},
      {Fabric::ofi, {"libfabric.so.1"}},
      {Fabric::ucx, {"libucp.so.0", "libuct.so.0", "libucs.so.0", "libucm.so.0", "libucs_signal.so.0"}},
      // The interface on which MPICH, MVAPICH, Intel MPI and Cray MPICH have agreed.
      {Fabric::mpi, {"libmpi.so.12", "libmpifort.so.12", "libmpicxx.so.12"}, FileNumbers::ignore},
  }};
  return kTable;
}

/// What a library loads by itself.
struct Modules {
  std::string_view soname;
  std::string_view directory;      ///< beside the library
  std::string_view configuration;  ///< a directory that says which; empty: none
};
constexpr std::array<Modules, 3> kModules = {{{"libfabric.so.1", "libfabric", ""},
                                              {"libucs.so.0", "ucx", ""},
                                              {"libibverbs.so.1", "libibverbs", "/etc/libibverbs.d"}}};

constexpr MountFlags kFileFlags{.read_only = true, .no_suid = true, .no_dev = true};

std::string origin_of(Fabric part) {
  return "fabric = \"" + std::string(to_string(part)) + "\"";
}

class Plan {
 public:
  Plan(const Scene& scene, ContainerEdits& edits)
      : scene_(scene), edits_(edits), host_(LibraryIndex::load(scene.roots.driver)), image_(image_index(scene)) {}

  /// A statically linked image, or one of musl, has no use for any of it.
  [[nodiscard]] bool image_has_glibc() const { return image_.find("libc.so.6").has_value(); }

  void add(const Row& row) {
    Closure closure = closure_;
    if (const auto taken = take(row.libraries, row.numbers, host_, image_, closure); !taken)
      return explain(row, taken.error());
    const std::string origin = origin_of(row.part);
    // What modules need may have modules, too.
    for (bool more = true; more;) {
      more = false;
      for (const Modules& modules : kModules)
        if (closure.contains(std::string(modules.soname)) && with_modules_.insert(modules.soname).second) {
          add_modules(modules, origin, closure);
          more = true;
        }
    }
    for (const auto& [soname, taken] : closure) {
      if (!mounted_.insert(soname).second) continue;
      for (const std::string& target : taken.targets) mount(taken.library.path, target, SourceType::regular, origin);
      if (taken.added) edits_.libraries.libraries.push_back({soname, taken.targets.front(), false});
    }
    closure_ = std::move(closure);
    if (row.part == Fabric::cxi) add_devices(origin);
  }

 private:
  /// Nobody who starts a container can do anything about most of it, and has asked for none of it: a warning is only
  /// that the image has a library which would not be replaced.
  void explain(const Row& row, const Error& why) {
    const auto has = [](const LibraryIndex& index) {
      return [&index](const std::string& soname) { return index.find(soname).has_value(); };
    };
    const bool in_image = std::any_of(row.libraries.begin(), row.libraries.end(), has(image_));
    const LogLevel level = !has(host_)(row.libraries.front()) ? LogLevel::debug
                           : in_image                         ? LogLevel::warning
                                                              : LogLevel::info;
    scene_.log.write(
        level, origin_of(row.part) +
                   (in_image ? ": the image's own libraries are used: " : ": the node's libraries are not used: ") +
                   why.message());
  }

  static LibraryIndex image_index(const Scene& scene) {
    std::vector<std::string> first;
    for (const std::string_view directory : split(scene.library_path, ':'))
      if (directory.starts_with('/')) first.emplace_back(directory);
    return LibraryIndex::load(scene.root, std::move(first));
  }

  void mount(const std::string& source, const std::string& target, SourceType type, const std::string& origin) {
    add_step(edits_, {.kind = StepKind::host_file,
                      .source = HostRoots::host_path(scene_.roots.driver_path, source),
                      .target = target,
                      .on_failure = OnFailure::warn,
                      .flags = kFileFlags,
                      .source_type = type,
                      .origin = origin});
  }

  /// Where the library looks for them: beside itself, and where it was built for.
  void add_modules(const Modules& modules, const std::string& origin, Closure& closure) {
    const Taken& parent = closure.at(std::string(modules.soname));
    const std::string directory = parent.library.directory() + "/" + std::string(modules.directory);
    const auto names = sysfs::names_in(scene_.roots.driver, directory).value_or(std::vector<std::string>());
    if (names.empty()) return;
    std::vector<std::string> targets;
    for (const std::string& target : parent.targets)
      add_once(targets, target.substr(0, target.rfind('/') + 1) + std::string(modules.directory));
    add_once(targets, directory);
    for (const std::string& target : targets) mount(directory, target, SourceType::directory, origin);
    const std::string configuration(modules.configuration);
    if (!configuration.empty() && scene_.roots.driver.exists(configuration))
      mount(configuration, configuration, SourceType::directory, origin);
    std::set<std::string> seen;
    for (const std::string& name : names) {
      const auto module = open_library(scene_.roots.driver, directory + "/" + name);
      if (!module || !seen.insert(module->path).second) continue;
      Closure with = closure;
      const auto taken = take_needed(*module, host_, image_, with, names);
      if (!taken) {
        // What the node lacks, too, is no use there either.
        scene_.log.write(taken.error().kind() == ErrorKind::not_found ? LogLevel::debug : LogLevel::detail,
                         origin + ": " + printable(name) + " will not be loaded: " + taken.error().message());
        continue;
      }
      closure = std::move(with);
      // A link to a library that lies elsewhere.
      if (!module->path.starts_with(directory + "/")) mount(module->path, module->path, SourceType::regular, origin);
    }
  }

  void add_devices(const std::string& origin) {
    const auto names = sysfs::names_in(scene_.roots.devices, "/dev");
    for (const std::string& name : names ? *names : std::vector<std::string>()) {
      if (!name.starts_with("cxi") || !parse_unsigned(std::string_view(name).substr(3))) continue;
      const std::string path = "/dev/" + name;
      const auto fd = scene_.roots.devices.resolve(path);
      if (!fd || access(fd_path(fd->get()).c_str(), R_OK | W_OK) != 0) continue;
      add_step(edits_, {.kind = StepKind::device,
                        .source = HostRoots::host_path(scene_.roots.device_path, path),
                        .target = path,
                        .on_failure = OnFailure::warn,
                        .origin = origin});
    }
  }

  const Scene& scene_;
  ContainerEdits& edits_;
  LibraryIndex host_, image_;
  Closure closure_;
  std::set<std::string> mounted_;            ///< SONAMEs
  std::set<std::string_view> with_modules_;  ///< of kModules
};

}  // namespace

Result<ContainerEdits> edits(const std::vector<Fabric>& parts, const Scene& scene) {
  ContainerEdits edits;
  if (parts.empty()) return edits;
  Plan plan(scene, edits);
  if (!plan.image_has_glibc()) {
    scene.log.debug("the node's fabric libraries are not used: the image has no glibc");
    return edits;
  }
  for (const Row& row : table())
    if (std::find(parts.begin(), parts.end(), row.part) != parts.end()) plan.add(row);
  return edits;
}

std::vector<std::string> missing_libraries(const std::vector<Fabric>& parts, const RootDir& node) {
  std::vector<std::string> missing;
  const LibraryIndex index = LibraryIndex::load(node);
  for (const Row& row : table())
    if (std::find(parts.begin(), parts.end(), row.part) != parts.end() && !index.find(row.libraries.front()))
      missing.push_back(row.libraries.front());
  return missing;
}

}  // namespace situla::fabric
