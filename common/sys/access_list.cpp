#include "common/sys/access_list.hpp"

#include <cerrno>
#include <cstdint>
#include <string>

#include <sys/xattr.h>

#include "common/base/codec.hpp"

namespace situla {
namespace {

// linux/posix_acl_xattr.h, and posix_acl.h. Little-endian on every machine.
constexpr uint32_t kVersion = 2;
constexpr uint32_t kOwner = 0x01, kUser = 0x02, kGroup = 0x04, kMask = 0x10, kOthers = 0x20;
constexpr uint32_t kRead = 4, kNothing = 0;
constexpr uint32_t kNoNumber = UINT32_MAX;  // of entries that need no number

}  // namespace

Result<void> let_user_read(int fd, uid_t user) {
  Encoder list;
  list.u32(kVersion);
  const auto add = [&](uint32_t tag, uint32_t rights, uint32_t id) {
    list.u32(tag | rights << 16U);  // two numbers of 16 bits
    list.u32(id);
  };
  add(kOwner, kRead, kNoNumber);
  add(kUser, kRead, user);
  add(kGroup, kNothing, kNoNumber);
  add(kMask, kRead, kNoNumber);
  add(kOthers, kNothing, kNoNumber);
  const std::string bytes = list.take();
  if (fsetxattr(fd, "system.posix_acl_access", bytes.data(), bytes.size(), 0) == 0) return {};
  if (errno == EOPNOTSUPP) return fail(ErrorKind::unsupported, "the file system has no access lists");
  return fail_errno(errno, "let a user read a file");
}

}  // namespace situla
