#include "common/spec/device_name.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_alphanumeric(char c) {
  return is_letter(c) || (c >= '0' && c <= '9');
}

bool consists_of(std::string_view text, std::string_view other_characters) {
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_alphanumeric(c) || other_characters.find(c) != std::string_view::npos; });
}

bool is_vendor_or_class(std::string_view text) {
  return !text.empty() && is_letter(text.front()) && is_alphanumeric(text.back()) && consists_of(text, "_-.");
}

}  // namespace

bool is_device_kind(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != std::string_view::npos && is_vendor_or_class(text.substr(0, slash)) &&
         is_vendor_or_class(text.substr(slash + 1));
}

bool is_unqualified_device(std::string_view text) {
  return !text.empty() && is_alphanumeric(text.front()) && is_alphanumeric(text.back()) && consists_of(text, "_-.:");
}

bool is_device_name(const std::string& text) {
  const std::string_view name = text;
  const size_t equals = name.find('=');
  return equals != std::string_view::npos && is_device_kind(name.substr(0, equals)) &&
         is_unqualified_device(name.substr(equals + 1));
}

Result<std::vector<std::string>> parse_device_names(std::string_view text) {
  if (text == "none") return std::vector<std::string>{"none"};
  std::vector<std::string> names;
  for (const std::string_view part : split(text, ',')) {
    std::string name(part);
    if (!is_device_name(name))
      return fail(Error(ErrorKind::usage, "\"" + printable(name) + "\" is no name of a device")
                      .with_code(ErrorCode::cdi)
                      .with_hint("names look like nvidia.com/gpu=0; several stand between commas"));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace situla
