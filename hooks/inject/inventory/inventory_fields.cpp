#include "hooks/inject/inventory/inventory_fields.hpp"

namespace situla::nvidia {
namespace {

constexpr const char* kDocument = "the inventory";

}  // namespace

std::string serialize(const InventoryDocument& document) {
  return JsonWriter::text(JsonWriter::object(document));
}

Result<InventoryDocument> parse_inventory(std::string_view text) {
  TRY_ASSIGN(const auto json, parse_json(text, kDocument));
  const auto version = json.is_object() ? json.find("version") : json.end();
  if (version != json.end() && *version != InventoryDocument().version)
    return fail(ErrorKind::corrupt, "read the inventory: a version that this program does not know");
  return JsonReader::object<InventoryDocument>(json, kDocument);
}

}  // namespace situla::nvidia
