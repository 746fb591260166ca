#include "hooks/inject/ldcache/forward_compat.hpp"

#include <algorithm>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/directory.hpp"
#include "hooks/inject/ldcache/elf_file.hpp"
#include "hooks/inject/ldcache/path_in_root.hpp"

namespace situla {
namespace {

constexpr std::string_view kLibrary = "libcuda.so.";

/// "550.54.14" -> 550, 54, 14; what is no number ends it.
std::vector<uint64_t> numbers_of(std::string_view version) {
  std::vector<uint64_t> numbers;
  for (const std::string_view part : split(version, '.')) {
    const auto number = parse_unsigned(part);
    if (!number) break;
    numbers.push_back(*number);
  }
  return numbers;
}

struct CompatLibrary {
  std::string version;
  ElfFile elf;
};

/// The only regular file libcuda.so.*.* there.
Result<std::optional<CompatLibrary>> find_library(const RootDir& root, const std::string& directory, int fd) {
  TRY_ASSIGN(const auto names, list_directory(fd, directory));
  std::optional<CompatLibrary> found;
  for (const std::string& name : names) {
    if (!name.starts_with(kLibrary) || name.find('.', kLibrary.size()) == std::string::npos) continue;
    const auto file = root.open_at(directory + "/" + name, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat status {};
    if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (found) return fail(ErrorKind::corrupt, "more than one libcuda.so.*.* in the image's " + directory);
    auto elf = ElfFile::read(file->get(), ElfNotes::read);
    if (!elf) return fail(std::move(elf).error().with_context("the image's " + directory + "/" + name));
    found = CompatLibrary{name.substr(kLibrary.size()), std::move(*elf)};
  }
  return found;
}

/// What NVIDIA wrote into newer ones says which drivers they know.
Result<bool> allowed_by_note(const CompatLibrary& library, std::string_view driver_version,
                             std::string_view cuda_version) {
  const auto note = parse_json(*library.elf.cuda_compat);
  if (!note || note->as_object() == nullptr)
    return fail(ErrorKind::corrupt, "the note .note.cuda.fwd_compatibility of the image's libcuda is no JSON object");
  const auto driver = numbers_of(driver_version);
  if (const Json::List& branches = note->items("Driver"); !driver.empty() && !branches.empty()) {
    const bool known = std::any_of(branches.begin(), branches.end(),
                                   [&](const Json& branch) { return branch.as_number() == driver.front(); });
    return known && numbers_of(library.version) > driver;
  }
  const Json* cuda = note->find("CUDA Version");
  if (cuda == nullptr || cuda->as_text() == nullptr || cuda_version.empty()) return false;
  return numbers_of(*cuda->as_text()) > numbers_of(cuda_version);
}

Result<bool> is_allowed(const CompatLibrary& library, std::string_view driver_version, std::string_view cuda_version) {
  if (library.elf.cuda_compat) return allowed_by_note(library, driver_version, cuda_version);
  const auto ours = numbers_of(driver_version), theirs = numbers_of(library.version);
  return !ours.empty() && !theirs.empty() && theirs.front() > ours.front();
}

}  // namespace

Result<std::optional<std::string>> forward_compat_directory(const RootDir& root, std::string_view directory,
                                                            std::string_view driver_version,
                                                            std::string_view cuda_version) {
  const auto opened = root.open_at(directory, O_RDONLY | O_DIRECTORY);
  if (!opened) return std::nullopt;
  TRY_ASSIGN(const std::string path, path_in_root(root, opened->get()));
  TRY_ASSIGN(const auto library, find_library(root, path, opened->get()));
  if (!library) return std::nullopt;
  TRY_ASSIGN(const bool allowed, is_allowed(*library, driver_version, cuda_version));
  return allowed ? std::optional(path) : std::nullopt;
}

}  // namespace situla
