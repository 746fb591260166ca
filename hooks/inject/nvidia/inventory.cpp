#include "hooks/inject/nvidia/inventory.hpp"

#include "hooks/inject/nvidia/inventory_fields.hpp"

namespace situla::nvidia {
namespace {

constexpr uint32_t kVersion = 1;

struct Document {
  uint32_t version = kVersion;
  Inventory inventory;
};

void fields(auto& archive, Is<Document> auto& item) {
  archive.field("version", item.version);
  archive.field("inventory", item.inventory);
}

}  // namespace

std::string to_text(const DeviceNumber& number) {
  return std::string(1, number.type) + " " + std::to_string(number.major) + ":" + std::to_string(number.minor);
}

std::optional<DeviceNumber> parse_device_number(std::string_view text) {
  if (!text.starts_with("c ") && !text.starts_with("b ")) return std::nullopt;
  const auto parts = cut(text.substr(2), ':');
  if (!parts) return std::nullopt;
  const auto major = parse_unsigned(parts->first), minor = parse_unsigned(parts->second);
  constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
  if (!major || !minor || *major > kMost || *minor > kMost) return std::nullopt;
  return DeviceNumber{text.front(), static_cast<uint32_t>(*major), static_cast<uint32_t>(*minor)};
}

std::string serialize(const Inventory& inventory) {
  return JsonWriter::text(JsonWriter::object(Document{kVersion, inventory}));
}

Result<Inventory> parse_inventory(std::string_view document) {
  TRY_ASSIGN(const auto json, parse_json(document, "the inventory"));
  const auto version = json.is_object() ? json.find("version") : json.end();
  if (version != json.end() && *version != kVersion)
    return fail(ErrorKind::corrupt, "read the inventory: a version that this program does not know");
  TRY_ASSIGN(auto read, JsonReader::object<Document>(json, "the inventory"));
  return std::move(read.inventory);
}

}  // namespace situla::nvidia
