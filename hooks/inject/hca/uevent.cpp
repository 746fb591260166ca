#include "hooks/inject/hca/uevent.hpp"

#include <algorithm>
#include <climits>

#include "common/base/text.hpp"

namespace situla::hca {
namespace {

bool is_node_name(std::string_view text) {
  const std::vector<std::string_view> parts = split(text, '/');
  return std::all_of(parts.begin(), parts.end(), is_file_name);
}

std::optional<uint32_t> device_number_part(std::string_view text) {
  const std::optional<uint64_t> number = parse_unsigned(text);
  if (!number || *number > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

}  // namespace

bool is_file_name(std::string_view text) {
  if (text.empty() || text == "." || text == ".." || text.size() > NAME_MAX) return false;
  return std::none_of(text.begin(), text.end(), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return letter == '/' || byte < 0x20 || byte == 0x7f;
  });
}

Uevent parse_uevent(std::string_view text) {
  Uevent found;
  std::optional<uint32_t> major;
  std::optional<uint32_t> minor;
  for (const std::string_view line : split(text, '\n')) {
    const auto field = cut(line, '=');
    if (!field) continue;
    const auto& [key, value] = *field;
    if (key == "MAJOR") major = device_number_part(value);
    if (key == "MINOR") minor = device_number_part(value);
    if (key == "NAME" && is_file_name(value)) found.name = value;
    if (key == "DEVNAME" && is_node_name(value)) found.node = value;
  }
  if (major && minor) found.number = DeviceNumber{'c', *major, *minor};
  return found;
}

}  // namespace situla::hca
