#include "hooks/edf/edf_search.hpp"

#include <filesystem>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla::edf {
namespace {

constexpr std::string_view kEnding = ".toml";
constexpr size_t kMaxFileBytes = size_t{1} << 20U;

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(kEnding);
}

bool is_there(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

Error not_found(const std::string& name, const EdfPlaces& places) {
  if (is_path(name))
    return Error(ErrorKind::not_found, "no environment file " + printable(name)).with_code(ErrorCode::environment_file);
  std::vector<std::string_view> names;
  const std::vector<ListedEdf> listed = list_edfs(places);
  for (const ListedEdf& each : listed)
    if (!each.hidden) names.push_back(each.name);
  Error error(ErrorKind::not_found,
              "no environment \"" + printable(name) + "\" in " + printable(join(places.directories, ", ")));
  if (is_there(name))
    return std::move(error)
        .with_code(ErrorCode::environment_file)
        .with_hint("for the file of that name write ./" + printable(name));
  if (names.empty())
    return std::move(error)
        .with_code(ErrorCode::environment_file)
        .with_hint("there is none; a path begins with / or ./");
  return std::move(error).with_code(ErrorCode::environment_file).with_hint(suggestion(name, names, "environments"));
}

}  // namespace

EdfPlaces EdfPlaces::of(const Environment& environment, std::string current, const std::string& site_directory) {
  EdfPlaces places{{}, std::move(current), environment};
  const std::string home = environment.get_or("HOME", "");
  std::string path = environment.get_or("EDF_PATH", "");
  if (path.empty() && !home.empty()) path = home + "/.edf";
  for (const std::string_view directory : split_nonempty(path, ':'))
    if (directory.starts_with('/')) add_once(places.directories, std::string(directory));
  add_once(places.directories, site_directory);
  return places;
}

VariableLookup EdfPlaces::lookup() const {
  return [this](std::string_view name) -> std::optional<std::string> {
    const auto value = variables.get(name);
    return value ? std::optional<std::string>(*value) : std::nullopt;
  };
}

std::string EdfPlaces::absolute(const std::string& path) const {
  if (path != "." && path != ".." && !path.starts_with("./") && !path.starts_with("../")) return path;
  std::string whole = std::filesystem::path(current + "/" + path).lexically_normal();
  if (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  return whole;
}

std::vector<ListedEdf> list_edfs(const EdfPlaces& places) {
  std::vector<ListedEdf> listed;
  std::set<std::string> known;
  for (const std::string& directory : places.directories) {
    const auto names = names_with_suffix(directory, kEnding);
    if (!names) continue;
    for (const std::string& file : *names) {
      std::string name = file.substr(0, file.size() - kEnding.size());
      const bool hidden = !known.insert(name).second;
      listed.push_back({std::move(name), directory + "/" + file, hidden});
    }
  }
  return listed;
}

Result<std::string> find_edf(const std::string& name, const EdfPlaces& places) {
  // No shell expands it behind an option's '='.
  const std::string written = name.starts_with("~/") ? "${HOME}" + name.substr(1) : name;
  TRY_ASSIGN(const std::string wanted, expand_references(written, places.lookup()));
  if (wanted.empty()) return fail(ErrorKind::usage, "the name of the environment is empty");
  if (is_path(wanted)) {
    std::string path = wanted.starts_with('/') ? wanted : places.absolute("./" + wanted);
    if (!is_there(path)) return fail(not_found(wanted, places));
    return path;
  }
  for (const std::string& directory : places.directories) {
    std::string path = directory + "/" + wanted + std::string(kEnding);
    if (is_there(path)) return path;
  }
  return fail(not_found(wanted, places));
}

Result<std::string> read_edf(const std::string& path) {
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDONLY | O_NONBLOCK));  // not to wait for a pipe's writer
  struct stat status {};
  if (fstat(file.get(), &status) != 0) return fail_errno(errno, "stat " + path);
  if (S_ISDIR(status.st_mode)) return fail(ErrorKind::usage, path + " is a directory");
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, path + " is not a regular file");
  if (static_cast<uint64_t>(status.st_size) > kMaxFileBytes)
    return fail(ErrorKind::usage, path + " is larger than " + format_size(kMaxFileBytes));
  return read_all(file.get(), kMaxFileBytes);
}

}  // namespace situla::edf
