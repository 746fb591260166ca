#include "common/base/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace situla {
namespace {

ErrorKind kind_of_errno(int errnum) {
  switch (errnum) {
    case ENOENT:
    case ENXIO:
    case ENODEV:
      return ErrorKind::not_found;
    case EEXIST:
      return ErrorKind::exists;
    case EACCES:
    case EPERM:
      return ErrorKind::denied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return ErrorKind::no_space;
    case ENOSYS:
    case EOPNOTSUPP:
      return ErrorKind::unsupported;
    case ECONNREFUSED:
    case ECONNRESET:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return ErrorKind::network;
    case EINTR:
    case ECANCELED:
      return ErrorKind::cancelled;
    default:
      return ErrorKind::failure;
  }
}

constexpr std::array<std::string_view, 11> kKindNames = {"failure",     "usage",     "not_found",  "exists",
                                                         "denied",      "network",   "corrupt",    "no_space",
                                                         "unsupported", "cancelled", "unreachable"};

}  // namespace

Error Error::from_errno(int errnum, std::string_view what) {
  // strerror_r's GNU form: no shared buffer, so it is safe in slurmstepd's threads.
  std::array<char, 128> buffer{};
  const char* reason = strerror_r(errnum, buffer.data(), buffer.size());
  Error error(kind_of_errno(errnum), std::string(what) + ": " + reason);
  error.errnum_ = errnum;
  return error;
}

bool Error::inconclusive() const {
  constexpr std::array<int, 9> kOfTheMachine = {EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC, EDQUOT, EIO, ESTALE, EINTR};
  return std::find(kOfTheMachine.begin(), kOfTheMachine.end(), errnum_) != kOfTheMachine.end();
}

Error& Error::with_context(std::string_view phrase) & {
  message_.insert(0, std::string(phrase) + ": ");
  return *this;
}

Error& Error::with_hint(std::string_view hint) & {
  if (hint_.empty()) hint_ = hint;
  return *this;
}

std::string Error::text() const {
  return hint_.empty() ? message_ : message_ + "\nhint: " + hint_;
}

std::string_view to_string(ErrorKind kind) {
  return kKindNames.at(static_cast<size_t>(kind));
}

ErrorKind error_kind_from_string(std::string_view name) {
  for (size_t i = 0; i < kKindNames.size(); ++i)
    if (kKindNames.at(i) == name) return static_cast<ErrorKind>(i);
  return ErrorKind::failure;
}

}  // namespace situla
