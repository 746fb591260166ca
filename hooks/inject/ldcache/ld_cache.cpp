#include "hooks/inject/ldcache/ld_cache.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <iterator>
#include <optional>
#include <unordered_map>

namespace situla {
namespace {

// Of glibc, elf/cache.c and sysdeps/generic/dl-cache.h; all numbers are in the byte order of the machine.
constexpr std::string_view kOldMagic = "ld.so-1.7.0";
constexpr size_t kOldHeader = 16, kOldEntry = 12;
constexpr std::string_view kNewMagic = "glibc-ld.so.cache1.1";
constexpr size_t kNewHeader = 48, kNewEntry = 24;
constexpr size_t kCountAt = 20, kStringsSizeAt = 24, kFlagsAt = 28, kExtensionAt = 32;
constexpr uint32_t kExtensionMagic = 0xeaa42174;
constexpr size_t kExtensionHeader = 8, kSectionSize = 16;
constexpr uint32_t kSectionHwcaps = 1;
// Entries may share their texts; more than this, written out, is no cache but an attack.
constexpr size_t kMaxTexts = size_t{64} << 20U;
constexpr char kByteOrderMask = 3, kLittleEndian = 2;
// The upper half of hwcap, without the bits for levels of the instruction set, says that the lower half is an index.
constexpr uint64_t kHwcapExtension = uint64_t{1} << 62U;
constexpr uint64_t kHwcapKind = ~((uint64_t{1023} << 32U) | UINT32_MAX);

bool is_named(const LdCacheEntry& entry) {
  return (entry.hwcap & kHwcapKind) == kHwcapExtension;
}

template <typename Number>
std::optional<Number> number_at(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Number)) return std::nullopt;
  Number value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// The text that begins there and ends with a NUL inside the bytes; nothing that is no file name either.
std::optional<std::string_view> text_at(std::string_view bytes, uint64_t offset) {
  if (offset >= bytes.size()) return std::nullopt;
  const std::string_view rest = bytes.substr(offset, PATH_MAX);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos || end == 0) return std::nullopt;
  return rest.substr(0, end);
}

tl::unexpected<Error> corrupt_cache(std::string_view why) {
  return fail(ErrorKind::corrupt, "read the dynamic linker's cache: " + std::string(why));
}

/// Where the block of the new format begins.
std::optional<size_t> find_block(std::string_view bytes) {
  if (bytes.starts_with(kNewMagic)) return 0;
  const auto count = number_at<uint32_t>(bytes, kOldMagic.size() + 1);
  if (!bytes.starts_with(kOldMagic) || !count) return std::nullopt;
  const uint64_t end = kOldHeader + uint64_t{*count} * kOldEntry;
  for (const uint64_t alignment : {8U, 4U}) {  // i386 aligns 64-bit numbers by 4
    const uint64_t start = (end + alignment - 1) / alignment * alignment;
    if (start < bytes.size() && bytes.substr(start).starts_with(kNewMagic)) return start;
  }
  return std::nullopt;
}

/// The names of the glibc-hwcaps directories. Offsets of extensions count from the beginning of the file, offsets of
/// texts from that of the block.
Result<std::vector<std::string_view>> read_hwcaps(std::string_view file, std::string_view block) {
  std::vector<std::string_view> names;
  const uint64_t start = number_at<uint32_t>(block, kExtensionAt).value_or(0);
  if (start == 0) return names;
  const auto magic = number_at<uint32_t>(file, start), count = number_at<uint32_t>(file, start + 4);
  if (!magic || !count || *magic != kExtensionMagic) return corrupt_cache("its extensions are not where it says");
  if (*count > (file.size() - start - kExtensionHeader) / kSectionSize) return corrupt_cache("an extension is cut off");
  for (uint64_t at = start + kExtensionHeader, i = 0; i < *count; ++i, at += kSectionSize) {
    if (*number_at<uint32_t>(file, at) != kSectionHwcaps) continue;
    const uint64_t offset = *number_at<uint32_t>(file, at + 8), size = *number_at<uint32_t>(file, at + 12);
    if (offset > file.size() || size > file.size() - offset || !names.empty())
      return corrupt_cache("the list of its hwcaps is cut off");
    for (uint64_t name = offset; name + 4 <= offset + size; name += 4) {
      const auto text = text_at(block, *number_at<uint32_t>(file, name));
      if (!text) return corrupt_cache("the name of a hwcap is cut off");
      names.push_back(*text);
    }
  }
  return names;
}

/// The linker finds a name by bisection, and then goes through all of that name.
bool comes_before(const LdCacheEntry& one, const LdCacheEntry& other) {
  if (const int order = compare_ld_names(one.soname, other.soname); order != 0) return order > 0;
  if (one.flags != other.flags) return one.flags > other.flags;
  // It stops at the first one that needs no hwcap.
  return is_named(one) && !is_named(other);
}

template <typename Number>
void append_number(std::string& bytes, Number value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void set_number(std::string& bytes, size_t offset, uint64_t value) {
  const auto narrow = static_cast<uint32_t>(value);
  std::memcpy(bytes.data() + offset, &narrow, sizeof narrow);
}

/// Texts one behind the other, each once as long as its neighbours are the same.
class StringTable {
 public:
  explicit StringTable(size_t start) : start_(start) {}
  /// Its offset from the beginning of the file.
  uint32_t add(std::string_view text) {
    const size_t offset = start_ + bytes_.size();
    bytes_.append(text).push_back('\0');
    return static_cast<uint32_t>(offset);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  size_t start_;
  std::string bytes_;
};

/// Appends the extension block, which holds nothing but the names of hwcaps.
void append_extension(std::string& file, const std::vector<uint32_t>& names) {
  file.resize((file.size() + 3) / 4 * 4, '\0');
  const size_t start = file.size();
  set_number(file, kExtensionAt, start);
  append_number(file, kExtensionMagic);
  append_number(file, uint32_t{1});
  append_number(file, kSectionHwcaps);
  append_number(file, uint32_t{0});
  append_number(file, static_cast<uint32_t>(start + kExtensionHeader + kSectionSize));
  append_number(file, static_cast<uint32_t>(names.size() * sizeof(uint32_t)));
  for (const uint32_t offset : names) append_number(file, offset);
}

}  // namespace

uint32_t native_ld_flags(bool is_32bit) {
#if defined(__x86_64__)
  return kLdElfLibc6 | (is_32bit ? kLdI386 : kLdX86_64);
#elif defined(__aarch64__)
  return kLdElfLibc6 | (is_32bit ? kLdArmHardFloat : kLdAarch64);
#elif defined(__powerpc64__)
  return kLdElfLibc6 | (is_32bit ? 0U : kLdPpc64Le);
#else
#error "which flags does ldconfig give to libraries of this processor?"
#endif
}

int compare_ld_names(std::string_view one, std::string_view other) {
  const auto is_digit = [](std::string_view text, size_t at) {
    return at < text.size() && text[at] >= '0' && text[at] <= '9';
  };
  size_t i = 0, j = 0;
  while (i < one.size()) {
    if (is_digit(one, i)) {
      if (!is_digit(other, j)) return 1;
      // Too long numbers wrap, as they do there.
      uint32_t left = 0, right = 0;
      for (; is_digit(one, i); ++i) left = left * 10 + static_cast<uint32_t>(one[i] - '0');
      for (; is_digit(other, j); ++j) right = right * 10 + static_cast<uint32_t>(other[j] - '0');
      if (left != right) return static_cast<int32_t>(left) < static_cast<int32_t>(right) ? -1 : 1;
    } else if (is_digit(other, j)) {
      return -1;
    } else if (j == other.size() || one[i] != other[j]) {
      return one[i] - (j == other.size() ? '\0' : other[j]) < 0 ? -1 : 1;
    } else {
      ++i, ++j;
    }
  }
  // As glibc compares them, whose `char` has a sign or has none as this one.
  const int next = j == other.size() ? 0 : other[j];
  return next == 0 ? 0 : (next < 0 ? 1 : -1);
}

Result<LdCache> LdCache::parse(std::string_view bytes) {
  const auto start = find_block(bytes);
  if (!start) return corrupt_cache("it is in no known format");
  const std::string_view block = bytes.substr(*start);
  const auto count = number_at<uint32_t>(block, kCountAt);
  if (block.size() < kNewHeader || !count || *count > (block.size() - kNewHeader) / kNewEntry)
    return corrupt_cache("it is cut off");
  if ((block[kFlagsAt] & kByteOrderMask) != 0 && (block[kFlagsAt] & kByteOrderMask) != kLittleEndian)
    return corrupt_cache("it is for a machine of another byte order");
  LdCache cache;
  TRY_ASSIGN(cache.hwcaps, read_hwcaps(bytes, block));
  cache.entries.reserve(*count);
  size_t texts = 0;
  for (uint64_t at = kNewHeader, i = 0; i < *count; ++i, at += kNewEntry) {
    LdCacheEntry entry;
    entry.flags = *number_at<uint32_t>(block, at);
    const auto soname = text_at(block, *number_at<uint32_t>(block, at + 4));
    const auto path = text_at(block, *number_at<uint32_t>(block, at + 8));
    entry.os_version = *number_at<uint32_t>(block, at + 12);
    entry.hwcap = *number_at<uint64_t>(block, at + 16);
    if (!soname || !path) return corrupt_cache("entry " + std::to_string(i) + " has no name or no path");
    texts += soname->size() + path->size();
    if (texts > kMaxTexts) return corrupt_cache("its names are too long");
    if (is_named(entry) && (entry.hwcap & UINT32_MAX) >= cache.hwcaps.size())
      return corrupt_cache("entry " + std::to_string(i) + " is for an unknown hwcap");
    entry.soname = *soname;
    entry.path = *path;
    cache.entries.push_back(entry);
  }
  return cache;
}

void LdCache::put(const std::vector<LdCacheEntry>& added) {
  std::vector<LdCacheEntry> fresh;
  std::unordered_map<std::string_view, std::vector<uint32_t>> known;  // SONAME -> processors
  for (const LdCacheEntry& entry : added) {
    auto& processors = known[entry.soname];
    if (std::find(processors.begin(), processors.end(), entry.arch()) != processors.end()) continue;
    processors.push_back(entry.arch());
    fresh.push_back(entry);
  }
  std::erase_if(entries, [&](const LdCacheEntry& entry) {
    const auto found = known.find(entry.soname);
    return found != known.end() &&
           std::find(found->second.begin(), found->second.end(), entry.arch()) != found->second.end();
  });
  if (!std::is_sorted(entries.begin(), entries.end(), comes_before))
    std::stable_sort(entries.begin(), entries.end(), comes_before);
  std::stable_sort(fresh.begin(), fresh.end(), comes_before);
  std::vector<LdCacheEntry> merged;
  merged.reserve(entries.size() + fresh.size());
  std::merge(fresh.begin(), fresh.end(), entries.begin(), entries.end(), std::back_inserter(merged), comes_before);
  entries = std::move(merged);
}

void LdCache::drop_directory(std::string_view directory) {
  std::erase_if(entries, [&](const LdCacheEntry& entry) {
    const size_t slash = entry.path.rfind('/');
    return slash != std::string_view::npos && entry.path.substr(0, slash) == directory;
  });
}

std::string LdCache::serialize() const {
  std::vector<LdCacheEntry> ordered;
  const std::vector<LdCacheEntry>* list = &entries;
  if (!std::is_sorted(entries.begin(), entries.end(), comes_before)) {
    ordered = entries;
    std::stable_sort(ordered.begin(), ordered.end(), comes_before);
    list = &ordered;
  }
  std::string file(kNewHeader, '\0');
  std::memcpy(file.data(), kNewMagic.data(), kNewMagic.size());
  file[kFlagsAt] = kLittleEndian;
  StringTable strings(kNewHeader + list->size() * kNewEntry);
  for (const LdCacheEntry& entry : *list) {
    const uint32_t path = strings.add(entry.path);
    // Mostly the end of the path.
    const uint32_t soname = entry.path.ends_with(entry.soname)
                                ? path + static_cast<uint32_t>(entry.path.size() - entry.soname.size())
                                : strings.add(entry.soname);
    for (const uint32_t value : {entry.flags, soname, path, entry.os_version}) append_number(file, value);
    append_number(file, entry.hwcap);
  }
  std::vector<uint32_t> names;
  for (const std::string_view name : hwcaps) names.push_back(strings.add(name));
  set_number(file, kCountAt, list->size());
  set_number(file, kStringsSizeAt, strings.bytes().size());
  file += strings.bytes();
  if (!names.empty()) append_extension(file, names);
  return file;
}

}  // namespace situla
