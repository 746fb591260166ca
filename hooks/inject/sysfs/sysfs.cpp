#include "hooks/inject/sysfs/sysfs.hpp"

#include <algorithm>
#include <climits>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"

namespace situla::sysfs {
namespace {

constexpr size_t kMaxAttribute = 4096;  ///< bytes; sysfs gives a page at most

}  // namespace

std::string attribute(const RootDir& root, const std::string& path) {
  const Result<std::string> content = root.read_file(path, kMaxAttribute);
  if (!content) return "";
  return std::string(trim(content->substr(0, content->find('\n'))));
}

std::optional<std::string> read_link(const RootDir& root, const std::string& path) {
  const Result<UniqueFd> link = root.open_at(path, O_PATH | O_NOFOLLOW);
  if (!link) return std::nullopt;
  std::string text(PATH_MAX, '\0');
  const ssize_t size = readlinkat(link->get(), "", text.data(), text.size());
  if (size <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(size));
  return text;
}

Result<std::vector<std::string>> names_in(const RootDir& root, std::string_view path) {
  const Result<UniqueFd> directory = root.open_at(path, O_RDONLY | O_DIRECTORY);
  if (!directory && directory.error().kind() == ErrorKind::not_found) return std::vector<std::string>{};
  if (!directory) return fail(directory.error());
  TRY_ASSIGN(std::vector<std::string> names, list_directory(directory->get(), std::string(path)));
  std::sort(names.begin(), names.end());
  return names;
}

std::string device_directory(const RootDir& root, std::string_view class_directory, const std::string& name) {
  const std::optional<std::string> text = read_link(root, std::string(class_directory) + "/" + name);
  if (!text) return "";
  // By its text: in sysfs nothing between the two is a link.
  std::string path = (std::filesystem::path(class_directory) / *text).lexically_normal().string();
  return path.starts_with("/sys/devices/") ? path : "";
}

bool is_pci_address(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, ':');
  const auto is_hex = [](std::string_view digits, size_t least, size_t most) {
    return digits.size() >= least && digits.size() <= most &&
           digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  if (parts.size() != 3 || !is_hex(parts[0], 4, 8) || !is_hex(parts[1], 2, 2)) return false;
  const auto last = cut(parts[2], '.');
  return last && is_hex(last->first, 2, 2) && is_hex(last->second, 1, 1);
}

std::string function_directory(const std::string& device) {
  std::filesystem::path path(device);
  while (path.has_relative_path() && !is_pci_address(path.filename().string())) path = path.parent_path();
  return path.has_relative_path() ? path.string() : "";
}

}  // namespace situla::sysfs
