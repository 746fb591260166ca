#include "hooks/import/xattr_sets.hpp"

#include "common/base/codec.hpp"

namespace situla {
namespace {

// libsquashfs keeps each name and value twice as long, in hexadecimal, in a record of its own.
constexpr uint64_t kSetBytes = 300;
constexpr uint64_t kAttributeBytes = 100;
constexpr uint64_t kCopies = 3;

}  // namespace

Result<uint32_t> XattrSets::add(const Xattrs& xattrs, ImportMeter& meter, const Writer& write) {
  Encoder out;
  out.u32(static_cast<uint32_t>(xattrs.size()));
  uint64_t bytes = 0;
  for (const auto& [name, value] : xattrs) {
    out.text(name);
    out.text(value);
    bytes += name.size() + value.size();
  }
  std::string encoded = out.take();
  if (const auto known = numbers_.find(encoded); known != numbers_.end()) return known->second;
  TRY(meter.take_xattrs(bytes));
  TRY(meter.take_memory(kSetBytes + kAttributeBytes * xattrs.size() + kCopies * bytes));
  TRY_ASSIGN(const uint32_t number, write(xattrs));
  const auto [place, added] = numbers_.emplace(std::move(encoded), number);
  sets_.try_emplace(number, &place->first);
  return number;
}

Xattrs XattrSets::get(uint32_t number) const {
  const auto set = sets_.find(number);
  if (set == sets_.end()) return {};
  Decoder in(*set->second);
  Xattrs xattrs(in.u32());
  for (auto& [name, value] : xattrs) {
    name = in.text();
    value = in.text();
  }
  return xattrs;
}

}  // namespace situla
