#include <algorithm>
#include <set>

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/inject/inventory/driver_table.hpp"
#include "hooks/inject/inventory/gather.hpp"
#include "hooks/inject/inventory/proc_inventory.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "hooks/inject/ldcache/ld_cache.hpp"
#include "hooks/inject/ldcache/path_in_root.hpp"

namespace situla::nvidia {
namespace {

constexpr size_t kMaxCacheBytes = size_t{64} << 20U;
/// The ABI note of a libnvidia-tls for kernels with thread-local storage: Linux 2.3.99.
constexpr AbiTag kTlsTag{0, 2, 3, 99};

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

/// A file that is there, links followed inside the root.
struct Found {
  UniqueFd fd;
  std::string path;
  mode_t mode = 0;
};

std::optional<Found> find(const RootDir& root, const std::string& path, int flags = O_PATH) {
  auto fd = root.open_at(path, flags);
  struct stat status {};
  if (!fd || fstat(fd->get(), &status) != 0) return std::nullopt;
  auto resolved = path_in_root(root, fd->get());
  if (!resolved) return std::nullopt;
  return Found{std::move(*fd), std::move(*resolved), status.st_mode};
}

/// A directory of libraries and what is in it.
struct Directory {
  std::string path;
  std::vector<std::string> names;  ///< sorted

  [[nodiscard]] bool has(std::string_view name) const {
    return std::binary_search(names.begin(), names.end(), name, std::less<>());
  }
};

class LibrarySearch {
 public:
  LibrarySearch(const HostRoots& roots, Inventory& inventory, LogSink& log)
      : root_(roots.driver), inventory_(inventory), suffix_("." + inventory.driver_version), log_(log) {}

  void run() {
    cached_directories();
    for (const std::string_view path : table::kLibraryDirectories) add_directory(std::string(path));
    for (const Directory& directory : directories_) {
      for (const auto& rule : table::kLibraries) versioned(directory, rule, "");
      if (directory.has(table::kVdpauDirectory)) vdpau(directory);
    }
    if (inventory_.libraries.empty()) return;
    for (const Directory& directory : directories_)
      for (const std::string_view name : table::kEglPlatforms) egl_platform(directory, name);
  }

  [[nodiscard]] bool has(std::string_view name) const { return seen_.contains({std::string(name), false}); }

 private:
  /// Where the dynamic linker finds files of the driver: the installer may have been told any place.
  void cached_directories() {
    const auto bytes = root_.read_file("/etc/ld.so.cache", kMaxCacheBytes);
    const auto cache = bytes ? LdCache::parse(*bytes) : tl::unexpected<Error>(bytes.error());
    if (!cache) {
      log_.warning("NVIDIA's libraries are looked for in the usual directories: " + cache.error().message());
      return;
    }
    std::set<std::string, std::less<>> asked;  // one file of each directory tells
    for (const LdCacheEntry& entry : cache->entries) {
      if (!entry.is_elf() || !is_of_table(entry.soname)) continue;
      const auto found = find(root_, std::string(entry.path));
      if (!found || !found->path.ends_with(suffix_)) continue;
      std::string directory = found->path.substr(0, found->path.rfind('/'));
      if (asked.insert(directory).second) add_directory(directory);
    }
  }

  static bool is_of_table(std::string_view soname) {
    return std::any_of(table::kLibraries.begin(), table::kLibraries.end(),
                       [&](const auto& rule) { return soname.starts_with(rule.name); });
  }

  void add_directory(const std::string& path) {
    const auto found = find(root_, path);
    if (!found || !S_ISDIR(found->mode)) return;
    for (const Directory& known : directories_)
      if (known.path == found->path) return;
    directories_.push_back({found->path, names_in(root_, found->path)});
  }

  void vdpau(const Directory& parent) {
    const std::string path = parent.path + "/" + std::string(table::kVdpauDirectory);
    const Directory directory{path, names_in(root_, path)};
    for (const auto& rule : table::kLibraries)
      if (rule.name == table::kVdpauLibrary) versioned(directory, rule, std::string(table::kVdpauDirectory));
  }

  void versioned(const Directory& directory, const table::Rule& rule, const std::string& subdirectory) {
    const std::string file = std::string(rule.name) + suffix_;
    if (directory.has(file)) add(directory, file, rule.name, rule.capabilities, subdirectory);
  }

  /// Through the link with the SONAME: of several versions that one is in use.
  void egl_platform(const Directory& directory, std::string_view name) {
    const std::string prefix = std::string(name) + ".";
    for (auto file = std::lower_bound(directory.names.begin(), directory.names.end(), prefix);
         file != directory.names.end() && file->starts_with(prefix); ++file)
      if (parse_unsigned(std::string_view(*file).substr(prefix.size())))
        add(directory, *file, name, table::kForGraphics, "");
  }

  void add(const Directory& directory, const std::string& file, std::string_view name, CapabilitySet capabilities,
           const std::string& subdirectory) {
    const std::string path = directory.path + "/" + file;
    const auto found = find(root_, path, O_RDONLY | O_NONBLOCK);  // a FIFO must not make us wait
    const auto elf = found && S_ISREG(found->mode)
                         ? ElfFile::read(found->fd.get(), ElfNotes::read)
                         : tl::unexpected<Error>(Error(ErrorKind::failure, "it is no file that can be read"));
    if (!elf) return log_.warning(path + " is left out: " + elf.error().message());
    const auto flags = elf->ld_flags();
    const bool is_32bit = flags == native_ld_flags(true);
    if (!is_32bit && flags != native_ld_flags(false)) return;
    if (name == table::kTlsLibrary && elf->abi_tag != kTlsTag) return;
    if (!seen_.emplace(name, is_32bit).second) return;
    Library& library = inventory_.libraries.emplace_back();
    library.path = found->path;
    library.soname = elf->soname.empty() ? std::string(name_of(found->path)) : elf->soname;
    library.other_links = other_links(directory, name, library.soname);
    library.subdirectory = subdirectory;
    library.capabilities = capabilities;
    library.is_32bit = is_32bit;
  }

  std::vector<std::string> other_links(const Directory& directory, std::string_view name, const std::string& soname) {
    std::vector<std::string> links;
    const auto fd = root_.open_at(directory.path, O_PATH | O_DIRECTORY);
    if (!fd) return links;
    for (auto file = std::lower_bound(directory.names.begin(), directory.names.end(), name);
         file != directory.names.end() && file->starts_with(name); ++file) {
      std::array<char, PATH_MAX> target{};
      const ssize_t size = readlinkat(fd->get(), file->c_str(), target.data(), target.size());
      if (size > 0 && *file != soname && name_of({target.data(), static_cast<size_t>(size)}) == soname)
        links.push_back(*file);
    }
    const bool always = std::find(table::kWithDeveloperLink.begin(), table::kWithDeveloperLink.end(), name) !=
                        table::kWithDeveloperLink.end();
    if (always && soname != name && std::find(links.begin(), links.end(), name) == links.end())
      links.emplace_back(name);
    return links;
  }

  const RootDir& root_;
  Inventory& inventory_;
  std::string suffix_;
  LogSink& log_;
  std::vector<Directory> directories_;
  std::set<std::pair<std::string, bool>> seen_;  ///< name, is_32bit
};

std::vector<File> named_links(const LibrarySearch& libraries, const std::string& version) {
  std::vector<File> links;
  for (const auto& rule : table::kLinks) {
    if (!libraries.has(rule.library)) continue;
    std::string target(rule.target);
    if (target.ends_with(".V")) target.replace(target.size() - 1, 1, version);
    links.push_back({std::string(rule.path), target, rule.capabilities});
  }
  return links;
}

/// The first of the places that `fits`.
template <typename Places, typename Fits>
std::optional<std::string> first_found(const RootDir& root, const Places& places, std::string_view name, Fits fits) {
  for (const std::string_view place : places)
    if (const auto found = find(root, std::string(place) + std::string(name)); found && fits(found->mode))
      return found->path;
  return std::nullopt;
}

std::vector<File> find_programs(const RootDir& driver) {
  std::vector<File> programs;
  for (const auto& rule : table::kPrograms) {
    const std::string name = "/" + std::string(rule.name);
    const auto path = first_found(driver, table::kProgramDirectories, name,
                                  [](mode_t mode) { return S_ISREG(mode) && (mode & S_IXUSR) != 0; });
    if (path) programs.push_back({*path, "/usr/bin" + name, rule.capabilities});
  }
  return programs;
}

std::vector<File> find_configuration(const RootDir& driver) {
  std::vector<File> files;
  for (const auto& rule : table::kConfiguration) {
    const std::string name = "/" + std::string(rule.name);
    const auto path =
        first_found(driver, table::kConfigurationDirectories, name, [](mode_t mode) { return S_ISREG(mode); });
    if (path) files.push_back({*path, std::string(rule.target) + name, rule.capabilities});
  }
  return files;
}

/// In the kernel's order of search.
std::vector<std::string> firmware_directories(const RootDir& devices) {
  std::vector<std::string> directories;
  const auto configured = devices.read_file("/sys/module/firmware_class/parameters/path");
  if (configured && trim(*configured).starts_with('/')) directories.emplace_back(trim(*configured));
  utsname system{};
  (void)uname(&system);
  for (const char* base : {"/lib/firmware/updates", "/lib/firmware"})
    for (const std::string& directory : {std::string(base) + "/" + system.release, std::string(base)})
      directories.push_back(directory);
  return directories;
}

std::vector<File> find_firmware(const HostRoots& roots, const std::string& version) {
  std::vector<File> files;
  for (const std::string& directory : firmware_directories(roots.devices)) {
    const std::string tail = "/nvidia/" + version;
    for (const std::string& name : names_in(roots.driver, directory + tail)) {
      if (!name.starts_with("gsp") || !name.ends_with(".bin")) continue;
      const auto found = find(roots.driver, directory + tail + "/" + name);
      if (found && S_ISREG(found->mode)) files.push_back({found->path, "/lib/firmware" + tail + "/" + name, 0});
    }
    if (!files.empty()) break;
  }
  return files;
}

}  // namespace

void find_driver_files(const HostRoots& roots, Inventory& inventory, LogSink& log) {
  inventory.libraries.clear();
  LibrarySearch libraries(roots, inventory, log);
  libraries.run();
  if (inventory.libraries.empty())
    log.warning("no library of NVIDIA's driver " + inventory.driver_version + " is in " + roots.driver_path +
                ": the kernel module is of another version, or driver_root in situla.toml names another place");
  inventory.links = named_links(libraries, inventory.driver_version);
  inventory.binaries = find_programs(roots.driver);
  inventory.configuration = find_configuration(roots.driver);
  inventory.firmware = find_firmware(roots, inventory.driver_version);
}

std::vector<File> find_sockets(const RootDir& driver) {
  std::vector<File> sockets;
  for (const auto& rule : table::kSockets) {
    const std::string name = "/" + std::string(rule.name);
    const auto path = first_found(driver, table::kSocketDirectories, name, [](mode_t mode) { return S_ISSOCK(mode); });
    if (path) sockets.push_back({*path, "/var/run" + name, rule.capabilities});
  }
  return sockets;
}

}  // namespace situla::nvidia
