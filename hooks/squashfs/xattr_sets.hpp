// Which extended attributes does an entry have? Each set once, however many entries have it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/budget.hpp"
#include "hooks/squashfs/keyed_hash.hpp"

namespace situla {

using Xattrs = std::vector<std::pair<std::string, std::string>>;

class XattrSets {
 public:
  /// Number that the writer of the image gives to a set.
  using Writer = std::function<Result<uint32_t>(const Xattrs&)>;

  /// The number of the set; `write` is called for the first of its kind only.
  Result<uint32_t> add(const Xattrs& xattrs, ImportMeter& meter, const Writer& write);
  /// What was added under this number; empty for others.
  [[nodiscard]] Xattrs get(uint32_t number) const;

 private:
  struct Hash {
    KeyedHash keyed;
    size_t operator()(const std::string& text) const { return keyed(text); }
  };
  Result<void> check(const Xattrs& xattrs);
  Result<void> count(std::string_view text, bool as_digits);

  std::unordered_map<std::string, uint32_t, Hash> numbers_;  ///< by the set, encoded
  std::unordered_map<uint32_t, const std::string*> sets_;
  KeyedHash hash_;
  std::unordered_set<uint64_t> counted_;   ///< names and values, by a hash that nobody can foretell
  std::vector<uint16_t> of_one_checksum_;  ///< of counted_, by slots of libsquashfs' checksums
};

}  // namespace situla
