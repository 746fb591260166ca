#include "hooks/slurm/outside.hpp"

#include <algorithm>
#include <array>
#include <climits>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

/// What is left of a path behind a directory: "" or "/x/y". nullopt: it is not beneath it.
std::optional<std::string_view> behind(std::string_view path, std::string_view directory) {
  if (directory == "/") return path == "/" ? std::string_view() : path;
  if (!path.starts_with(directory)) return std::nullopt;
  const std::string_view rest = path.substr(directory.size());
  return rest.empty() || rest.starts_with('/') ? std::optional(rest) : std::nullopt;
}

std::string beneath(const std::string& directory, std::string_view rest) {
  if (rest.empty()) return directory;
  return (directory == "/" ? "" : directory) + std::string(rest);
}

/// A file system of a process (FUSE) may not answer whoever is outside of the container.
bool is_same(int directory, const std::string& path) {
  const auto other = open_file(path, O_PATH | O_DIRECTORY);
  struct stat one {};
  struct stat two {};
  return other && fstat(directory, &one) == 0 && fstat(other->get(), &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

}  // namespace

std::vector<std::string> host_candidates(const std::vector<MountRecord>& container, uint64_t mount,
                                         std::string_view inside, const std::vector<MountRecord>& host) {
  const auto record =
      std::find_if(container.begin(), container.end(), [&](const MountRecord& each) { return each.id == mount; });
  const auto rest = record == container.end() ? std::nullopt : behind(inside, record->path);
  if (!rest) return {};
  // Where in the file system it is, whatever part of it is mounted where.
  const std::string place = beneath(record->root, *rest);
  std::vector<std::pair<size_t, std::string>> found;
  for (const MountRecord& each : host)
    if (const auto left = each.device == record->device ? behind(place, each.root) : std::nullopt)
      found.emplace_back(each.path.size(), beneath(each.path, *left));
  // The shortest name is the one that people use.
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> paths;
  for (auto& [length, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::optional<std::string> host_path(int directory, std::string_view mountinfo) {
  std::array<char, PATH_MAX> link{};
  const ssize_t length = readlink(fd_path(directory).c_str(), link.data(), link.size());
  const auto mount = mount_id_by_proc(directory);
  const auto host = mount_table();
  if (length <= 0 || !mount || !host) return std::nullopt;
  const std::string_view inside(link.data(), static_cast<size_t>(length));
  for (std::string& path : host_candidates(parse_mount_table(mountinfo), *mount, inside, *host))
    if (is_same(directory, path)) return std::move(path);
  return std::nullopt;
}

}  // namespace situla
