#include "hooks/inject/fabric/closure.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "common/base/text.hpp"

namespace situla::fabric {
namespace {

constexpr size_t kMostLibraries = 128;

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// "libfabric.so.1" -> "libfabric.so."
std::string stem_of(const std::string& soname) {
  const size_t end = soname.find(".so.");
  return end == std::string::npos ? soname : soname.substr(0, end + 4);
}

/// Of "libfabric.so.1.18.0": 1, 18, 0; empty when something else than numbers follows ".so.".
std::vector<uint64_t> version_of(const std::string& path) {
  const std::string name = base_name(path);
  const size_t start = name.find(".so.");
  std::vector<uint64_t> version;
  if (start == std::string::npos) return version;
  for (const std::string_view piece : split(std::string_view(name).substr(start + 4), '.')) {
    const auto number = parse_unsigned(piece);
    if (!number) return {};
    version.push_back(*number);
  }
  return version;
}

/// All of glibc, which belong together: one of another release would not run.
bool is_of_c_library(const std::string& soname) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "libc.so.6",    "libm.so.6",         "libmvec.so.1",         "libpthread.so.0",       "libdl.so.2",
      "librt.so.1",   "libresolv.so.2",    "libutil.so.1",         "libanl.so.1",           "libnsl.so.1",
      "libcidn.so.1", "libthread_db.so.1", "libBrokenLocale.so.1", "libc_malloc_debug.so.0"};
  return std::find(kNames.begin(), kNames.end(), soname) != kNames.end() || soname.starts_with("libnss_") ||
         soname.starts_with("ld-linux") || soname.starts_with("ld64.so");
}

using Versions = std::unordered_set<std::string_view>;

/// All but the first, which is the library's own name and differs in nothing that matters.
Result<void> check_versions(const Library& host, const Library& image) {
  const auto& offered = host.linkage.defined;
  const auto& wanted = image.linkage.defined;
  const Versions known(offered.begin(), offered.end());
  for (size_t i = 1; i < wanted.size(); ++i)
    if (!known.contains(wanted[i]))
      return fail(ErrorKind::unsupported, "the image's " + printable(image.path) + " is newer: the node's " +
                                              host.path + " has no " + printable(wanted[i]));
  return {};
}

/// Can programs that were linked with the image's run with the host's?
Result<void> check_replacement(const Library& host, const Library& image, FileNumbers numbers) {
  TRY(check_versions(host, image));
  if (numbers == FileNumbers::ignore) return {};
  const std::vector<uint64_t> here = version_of(host.path), there = version_of(image.path);
  // "libfabric.so.1" alone says nothing more than the SONAME.
  if (here.size() > 1 && there.size() > 1 && here < there)
    return fail(ErrorKind::unsupported,
                "the image's " + printable(image.path) + " is newer than the node's " + host.path);
  return {};
}

Result<void> check_requirements(const Library& library, const std::string& needed, const Library& image) {
  const Versions known(image.linkage.defined.begin(), image.linkage.defined.end());
  for (const ElfLinkage::Requirement& requirement : library.linkage.required) {
    if (requirement.library != needed || requirement.version.empty() || known.contains(requirement.version)) continue;
    return fail(ErrorKind::unsupported, "the node's " + library.path + " needs " + printable(requirement.version) +
                                            ", and the image's " + printable(image.path) + " does not have it");
  }
  return {};
}

/// Every release of glibc has symbols of that version, and each has others.
Result<void> check_private(const Library& library) {
  const auto& required = library.linkage.required;
  if (std::none_of(required.begin(), required.end(),
                   [](const ElfLinkage::Requirement& one) { return one.version == "GLIBC_PRIVATE"; }))
    return {};
  return fail(ErrorKind::unsupported,
              "the node's " + library.path + " needs GLIBC_PRIVATE, which only the node's own glibc has");
}

/// Not a library for this processor in the image, but another version of it.
Result<void> check_other_names(const std::string& soname, const LibraryIndex& image) {
  const std::string stem = stem_of(soname);
  if (stem == soname) return {};
  for (const std::string& name : image.names_like(stem))
    if (name != soname)
      return fail(ErrorKind::unsupported, "the image has " + printable(name) + ", and the node " + soname);
  return {};
}

/// In the place of the image's files, or beside them.
Result<Taken> place(const std::string& soname, const Library& host, FileNumbers numbers, const LibraryIndex& image) {
  Taken taken{host, {}, false};
  for (const Library& own : image.find_all(soname)) {
    TRY(check_replacement(host, own, numbers));
    taken.targets.push_back(own.path);
  }
  if (!taken.targets.empty()) return taken;
  TRY(check_other_names(soname, image));
  taken.targets = {std::string(kDirectory) + "/" + soname};
  taken.added = true;
  return taken;
}

}  // namespace

Result<void> take_needed(const Library& library, const LibraryIndex& host, const LibraryIndex& image, Closure& closure,
                         const std::vector<std::string>& beside) {
  TRY(check_private(library));
  for (const std::string& needed : library.linkage.needed) {
    // The host's fit each other.
    if (closure.contains(needed) || std::find(beside.begin(), beside.end(), needed) != beside.end()) continue;
    if (const auto& own = image.find(needed)) {
      TRY(check_requirements(library, needed, *own));
      continue;
    }
    if (is_of_c_library(needed))
      return fail(ErrorKind::unsupported, "the image has no " + needed + ", which " + library.path + " needs");
    const auto& found = host.find(needed);
    if (!found)
      return fail(ErrorKind::not_found,
                  "neither image nor node has " + printable(needed) + ", which " + library.path + " needs");
    if (closure.size() >= kMostLibraries)
      return fail(ErrorKind::unsupported, library.path + " needs too many libraries that the image does not have");
    const auto [entry, added] = closure.emplace(needed, Taken{*found, {std::string(kDirectory) + "/" + needed}, true});
    TRY(take_needed(entry->second.library, host, image, closure));
  }
  return {};
}

Result<void> take(const std::vector<std::string>& sonames, FileNumbers numbers, const LibraryIndex& host,
                  const LibraryIndex& image, Closure& closure) {
  std::vector<const Library*> libraries;
  for (const std::string& soname : sonames) {
    const auto& found = host.find(soname);
    if (!found && soname == sonames.front()) return fail(ErrorKind::not_found, "the node has no " + soname);
    if (!found) continue;
    libraries.push_back(&*found);
    TRY_ASSIGN(Taken taken, place(soname, *found, numbers, image));
    closure.insert_or_assign(soname, std::move(taken));
  }
  // When all of them are known: they need each other.
  for (const Library* library : libraries) TRY(take_needed(*library, host, image, closure));
  return {};
}

}  // namespace situla::fabric
