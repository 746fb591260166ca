#include <array>
#include <set>

#include <sys/stat.h>

#include "common/base/text.hpp"
#include "hooks/inject/ldcache/forward_compat.hpp"
#include "hooks/inject/nvidia/plan.hpp"

namespace situla::nvidia {
namespace {

#if defined(__x86_64__)
constexpr const char* kTriplet = "x86_64-linux-gnu";
#elif defined(__aarch64__)
constexpr const char* kTriplet = "aarch64-linux-gnu";
#elif defined(__powerpc64__)
constexpr const char* kTriplet = "powerpc64le-linux-gnu";
#else
#error "which directory has the libraries of Debian on this architecture?"
#endif
constexpr const char* kMps = "/tmp/nvidia-mps";  // where it is unless CUDA_MPS_PIPE_DIRECTORY says otherwise

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Of what the container may read and run, but not change.
constexpr MountFlags kFileFlags{.read_only = true, .no_suid = true, .no_dev = true};
/// A socket cannot be connected to on a read-only mount of an outer container's; nothing there is a program.
constexpr MountFlags kSocketFlags{.no_suid = true, .no_dev = true, .no_exec = true};

class FilePlan {
 public:
  FilePlan(const Planning& planning, ContainerEdits& edits)
      : planning_(planning), edits_(edits), places_(library_places(planning.context.root)) {}

  void mount(const std::string& source, const std::string& target, SourceType type, const MountFlags& flags,
             OnFailure on_failure) {
    if (!targets_.insert(target).second) return;
    add_step(edits_, {.kind = StepKind::host_file,
                      .source = source,
                      .target = target,
                      .on_failure = on_failure,
                      .flags = flags,
                      .source_type = type,
                      .origin = kOrigin});
  }

  void add_library(const Library& library) {
    if (!wanted(library.capabilities) || (library.is_32bit && !planning_.has(kCompat32))) return;
    std::string directory = library.is_32bit ? places_.directory_32bit : places_.directory;
    if (directory.empty()) return;
    if (!library.subdirectory.empty()) directory += "/" + library.subdirectory;
    const std::string name = base_name(library.path);
    const std::string soname = library.soname.empty() ? name : library.soname;
    mount(planning_.driver_path(library.path), directory + "/" + name, SourceType::regular, kFileFlags,
          OnFailure::fail);
    if (soname != name) link(directory + "/" + soname, name);
    for (const std::string& other : library.other_links)
      if (other != soname && other != name) link(directory + "/" + other, soname);
    edits_.libraries.libraries.push_back({soname, directory + "/" + soname, library.is_32bit});
  }

  void add_links() {
    for (const File& entry : planning_.inventory.links)
      if (wanted(entry.capabilities))
        link(entry.path.starts_with('/') ? entry.path : places_.directory + "/" + entry.path, entry.target);
  }

  void add_files(const std::vector<File>& files, SourceType type, const MountFlags& flags, OnFailure on_failure) {
    for (const File& file : files)
      if (wanted(file.capabilities)) mount(planning_.driver_path(file.path), file.target, type, flags, on_failure);
  }

  /// Programs come by what was asked for itself: video needs CUDA's libraries, and not its MPS server.
  void add_binaries() {
    for (const File& file : planning_.inventory.binaries)
      if (file.capabilities == 0 || (file.capabilities & planning_.request.capabilities) != 0)
        mount(planning_.driver_path(file.path), file.target, SourceType::regular, kFileFlags, OnFailure::fail);
  }

 private:
  [[nodiscard]] bool wanted(CapabilitySet needed) const { return needed == 0 || planning_.has(needed); }
  /// The links of libraries are made here and not left to ldconfig, which may not run (musl) or not know the image.
  void link(const std::string& path, const std::string& target) {
    if (targets_.insert(path).second) edits_.files.push_back({FileChange::Kind::link, path, target, 0777});
  }

  const Planning& planning_;
  ContainerEdits& edits_;
  LibraryPlaces places_;
  std::set<std::string> targets_;
};

/// The directory of CUDA's Multi-Process Service: where the job says, else where the server makes it, if it runs.
void add_mps(const Planning& planning, FilePlan& files) {
  const std::string named = planning.context.environment.get_or("CUDA_MPS_PIPE_DIRECTORY", "");
  const std::string directory = named.empty() ? kMps : named;
  if (directory.starts_with('/') && planning.context.roots.devices.exists(directory))
    files.mount(planning.device_path(directory), directory, SourceType::directory, kSocketFlags, OnFailure::warn);
  else if (!named.empty())
    planning.log.warning("CUDA_MPS_PIPE_DIRECTORY=" + printable(directory) + ": no such directory on this node");
}

void add_sockets(const Planning& planning, FilePlan& files) {
  if (planning.has(kCompute)) add_mps(planning, files);
  files.add_files(planning.inventory.sockets, SourceType::any, kSocketFlags, OnFailure::warn);
}

/// An image's newer CUDA libraries where they fit; one whose libraries are broken starts with the driver's own.
void add_forward_compatibility(const Planning& planning, ContainerEdits& edits) {
  if (!planning.context.settings.cuda_compat || !planning.has(kCompute)) return;
  auto directory = forward_compat_directory(planning.context.root, kCudaCompatDirectory,
                                            planning.inventory.driver_version, planning.inventory.cuda_version);
  if (!directory)
    planning.log.warning("The image's CUDA compatibility libraries are not used: " + directory.error().message());
  else if (*directory)
    edits.libraries.preferred.push_back(std::move(**directory));
}

bool is_same_directory(const RootDir& root, const char* one, const char* other) {
  struct stat left {
  }, right{};
  const auto first = root.resolve(one), second = root.resolve(other);
  return first && second && fstat(first->get(), &left) == 0 && fstat(second->get(), &right) == 0 &&
         left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

bool is_musl(const RootDir& root) {
  return root.exists("/etc/alpine-release") || root.exists("/lib/ld-musl-x86_64.so.1") ||
         root.exists("/lib/ld-musl-aarch64.so.1");
}

}  // namespace

LibraryPlaces library_places(const RootDir& root) {
  const std::string debian = std::string("/usr/lib/") + kTriplet;
  if (root.exists("/etc/debian_version")) return {debian, "/usr/lib/i386-linux-gnu"};
  if (is_musl(root)) return {"/usr/lib", ""};
  // Images made of Debian's packages without base-files: the loader looks there, and not in /usr/lib64.
  if (!root.exists("/usr/lib64") && root.exists(debian)) return {debian, "/usr/lib/i386-linux-gnu"};
  // One directory with two names (Arch Linux) has room for one kind of library.
  for (const char* directory : {"/usr/lib32", "/usr/lib"})
    if (root.exists(directory) && !is_same_directory(root, directory, "/usr/lib64")) return {"/usr/lib64", directory};
  return {"/usr/lib64", ""};
}

void plan_files(const Planning& planning, ContainerEdits& edits) {
  const Inventory& inventory = planning.inventory;
  FilePlan files(planning, edits);
  for (const Library& library : inventory.libraries) files.add_library(library);
  files.add_links();
  files.add_binaries();
  files.add_files(inventory.configuration, SourceType::regular, kFileFlags, OnFailure::warn);
  // The kernel reads firmware from the host's disk; here it is only to be seen, and nothing to fail about.
  files.add_files(inventory.firmware, SourceType::regular, kFileFlags, OnFailure::ignore);
  add_sockets(planning, files);
  add_forward_compatibility(planning, edits);
}

}  // namespace situla::nvidia
