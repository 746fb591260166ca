#include "hooks/squashfs/budget.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {

Error over_limit(const std::string& what, const std::string& limit, const char* key) {
  return Error(ErrorKind::unsupported, what + ", the limit is " + limit)
      .with_code(ErrorCode::image_too_large)
      .with_hint(std::string("an administrator can raise ") + key +
                 " in the table [limits] of " SITULA_SYSCONF_DIR "/situla.toml");
}

Error text_over_limit(const std::string& what, uint64_t size, uint64_t limit, const char* key) {
  return over_limit(what + " has " + format_size(size), format_size(limit), key);
}

Result<void> ImportMeter::take_entry() {
  if (++entries_ <= budget_.entries) return {};
  return fail(over_limit("the image has " + std::to_string(entries_) + " entries or more",
                         std::to_string(budget_.entries), "entries"));
}

Result<void> ImportMeter::take_memory(uint64_t bytes) {
  const uint64_t now = memory_.fetch_add(bytes) + bytes;
  if (now <= budget_.metadata && now >= bytes) return {};
  return fail(over_limit(
      "names, inodes and tables take " + format_size(now) + " of memory after " + std::to_string(entries_) + " entries",
      format_size(budget_.metadata), "metadata"));
}

Result<void> ImportMeter::take_xattrs(uint64_t bytes) {
  xattrs_ += bytes;
  if (xattrs_ <= budget_.xattrs) return {};
  return fail(
      over_limit("extended attributes take " + format_size(xattrs_) + " after " + std::to_string(entries_) + " entries",
                 format_size(budget_.xattrs), "xattrs"));
}

Result<void> ImportMeter::take_file(uint64_t size, uint64_t compressed) {
  if (size > budget_.file_size)
    return fail(over_limit("the file has " + format_size(size), format_size(budget_.file_size), "file_size"));
  files_ += size;
  return check_expansion(files_, compressed);
}

Result<void> ImportMeter::check_expansion(uint64_t unpacked, uint64_t compressed) const {
  if (unpacked > budget_.unpacked)
    return fail(over_limit("the image unpacks to " + format_size(unpacked) + " or more", format_size(budget_.unpacked),
                           "unpacked"));
  if (unpacked <= ImportBudget::kFreelyUnpacked || unpacked / budget_.expansion <= compressed) return {};
  return fail(over_limit("the image unpacks to " + format_size(unpacked) + " or more, " +
                             std::to_string(unpacked / std::max<uint64_t>(compressed, 1)) + " times the " +
                             format_size(compressed) + " of its layers",
                         std::to_string(budget_.expansion) + " times", "expansion"));
}

}  // namespace situla
