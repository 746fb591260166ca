#include "hooks/squashfs/xattr_sets.hpp"

#include "common/base/codec.hpp"
#include "common/base/text.hpp"

namespace situla {
namespace {

// libsquashfs keeps each name and value twice as long, in hexadecimal, in a record of its own.
constexpr uint64_t kSetBytes = 300;
constexpr uint64_t kAttributeBytes = 120;
constexpr uint64_t kCopies = 3;

/// Names and values in one slot. Of 300,000 honest values less than twenty are; `metadata` allows a million of them.
constexpr uint16_t kMostOfOneSlot = 512;
constexpr uint32_t kSlotBits = 16;

/// Names of one entry. Linux lists no more of them (XATTR_LIST_MAX), and libsquashfs compares each with all others.
constexpr uint64_t kMostNames = 65536;

/// By which libsquashfs finds a text among those that it has: R5, without a key.
class Checksum {
 public:
  void add(char letter) {
    const int byte = static_cast<unsigned char>(letter);
    const int number = byte < 128 ? byte : byte - 256;
    sum_ = (sum_ + static_cast<uint32_t>(number * 16) + static_cast<uint32_t>(number >> 4)) * 11;  // NOLINT: as there
  }
  /// As it writes values down: the lower digit first.
  void add_digits(char byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    add(kDigits[static_cast<unsigned char>(byte) % kDigits.size()]);
    add(kDigits[static_cast<unsigned char>(byte) / kDigits.size()]);
  }
  /// Bits that differ where the checksums do.
  [[nodiscard]] uint32_t slot() const { return (sum_ * 2654435761U) >> (32 - kSlotBits); }

 private:
  uint32_t sum_ = 0;
};

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
  TRY(check(xattrs));
  TRY(meter.take_xattrs(bytes));
  TRY(meter.take_memory(kSetBytes + kAttributeBytes * xattrs.size() + kCopies * bytes));
  TRY_ASSIGN(const uint32_t number, write(xattrs));
  const auto [place, added] = numbers_.emplace(std::move(encoded), number);
  sets_.try_emplace(number, &place->first);
  return number;
}

Result<void> XattrSets::check(const Xattrs& xattrs) {
  uint64_t names = 0;
  for (const auto& xattr : xattrs) names += xattr.first.size() + 1;
  if (names > kMostNames)
    return fail(ErrorKind::unsupported, "the names of the extended attributes of an entry have " + format_size(names) +
                                            ", the limit is " + format_size(kMostNames));
  for (const auto& [name, value] : xattrs) {
    TRY(count(name, false));
    TRY(count(value, true));
  }
  return {};
}

Result<void> XattrSets::count(std::string_view text, bool as_digits) {
  if (!counted_.insert(hash_(text, as_digits ? 1 : 0)).second) return {};
  Checksum checksum;
  for (const char letter : text) as_digits ? checksum.add_digits(letter) : checksum.add(letter);
  of_one_checksum_.resize(size_t{1} << kSlotBits);
  if (++of_one_checksum_[checksum.slot()] <= kMostOfOneSlot) return {};
  return fail(ErrorKind::corrupt, "the image's extended attributes were made to have the same checksums");
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
