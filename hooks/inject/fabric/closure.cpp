#include "hooks/inject/fabric/closure.hpp"

#include <algorithm>

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

bool is_of_c_library(const std::string& soname) {
  return soname == "libc.so.6" || soname.starts_with("ld-linux") || soname.starts_with("ld64.so");
}

/// What of `wanted` is not in `offered`; empty: nothing.
std::string first_missing(const std::vector<std::string>& wanted, const std::vector<std::string>& offered) {
  for (const std::string& version : wanted)
    if (std::find(offered.begin(), offered.end(), version) == offered.end()) return version;
  return "";
}

/// The first definition is the library's own name, which differs in nothing that matters.
std::vector<std::string> versions(const Library& library) {
  const auto& defined = library.linkage.defined;
  return defined.empty() ? defined : std::vector<std::string>(defined.begin() + 1, defined.end());
}

/// Can programs that were linked with the image's run with the host's?
Result<void> check_replacement(const Library& host, const Library& image) {
  const std::string missing = first_missing(versions(image), versions(host));
  if (!missing.empty())
    return fail(ErrorKind::unsupported, "the image's " + printable(image.path) + " is newer: the node's " + host.path +
                                            " has no " + printable(missing));
  const std::vector<uint64_t> here = version_of(host.path), there = version_of(image.path);
  // "libfabric.so.1" alone says nothing more than the SONAME.
  if (here.size() > 1 && there.size() > 1 && here < there)
    return fail(ErrorKind::unsupported,
                "the image's " + printable(image.path) + " is newer than the node's " + host.path);
  return {};
}

Result<void> check_requirements(const Library& library, const std::string& needed, const Library& image) {
  for (const ElfLinkage::Requirement& requirement : library.linkage.required) {
    if (requirement.library != needed || requirement.version.empty()) continue;
    if (first_missing({requirement.version}, image.linkage.defined).empty()) continue;
    return fail(ErrorKind::unsupported, "the node's " + library.path + " needs " + printable(requirement.version) +
                                            ", and the image's " + printable(image.path) + " does not have it");
  }
  return {};
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
Result<Taken> place(const std::string& soname, Library host, const LibraryIndex& image) {
  Taken taken{std::move(host), {}, false};
  for (const Library& own : image.find_all(soname)) {
    TRY(check_replacement(taken.library, own));
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
  for (const std::string& needed : library.linkage.needed) {
    // The host's fit each other.
    if (closure.contains(needed) || std::find(beside.begin(), beside.end(), needed) != beside.end()) continue;
    if (const auto own = image.find(needed)) {
      TRY(check_requirements(library, needed, *own));
      continue;
    }
    if (is_of_c_library(needed))
      return fail(ErrorKind::unsupported, "the image has no " + needed + ", which " + library.path + " needs");
    auto found = host.find(needed);
    if (!found)
      return fail(ErrorKind::not_found,
                  "neither image nor node has " + printable(needed) + ", which " + library.path + " needs");
    if (closure.size() >= kMostLibraries)
      return fail(ErrorKind::unsupported, library.path + " needs too many libraries that the image does not have");
    const auto [entry, added] =
        closure.emplace(needed, Taken{std::move(*found), {std::string(kDirectory) + "/" + needed}, true});
    TRY(take_needed(entry->second.library, host, image, closure));
  }
  return {};
}

Result<void> take(const std::vector<std::string>& sonames, const LibraryIndex& host, const LibraryIndex& image,
                  Closure& closure) {
  std::vector<Library> libraries;
  for (const std::string& soname : sonames) {
    auto found = host.find(soname);
    if (!found && soname == sonames.front()) return fail(ErrorKind::not_found, "the node has no " + soname);
    if (!found) continue;
    libraries.push_back(*found);
    TRY_ASSIGN(Taken taken, place(soname, std::move(*found), image));
    closure.insert_or_assign(soname, std::move(taken));
  }
  // When all of them are known: they need each other.
  for (const Library& library : libraries) TRY(take_needed(library, host, image, closure));
  return {};
}

}  // namespace situla::fabric
