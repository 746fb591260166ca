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

/// What a full disk or a lack of memory means is the same wherever it happens.
ErrorCode code_of_errno(int errnum) {
  switch (errnum) {
    case ENOSPC:
    case EDQUOT:
      return ErrorCode::disk_full;
    case ENOMEM:
      return ErrorCode::memory;
    case EMFILE:
    case ENFILE:
      return ErrorCode::open_files;
    default:
      return ErrorCode::none;
  }
}

constexpr std::array kCodesOfKinds = {ErrorCode::failed,    ErrorCode::wrong_input, ErrorCode::not_found,
                                      ErrorCode::exists,    ErrorCode::denied,      ErrorCode::network,
                                      ErrorCode::damaged,   ErrorCode::no_space,    ErrorCode::unsupported,
                                      ErrorCode::cancelled, ErrorCode::network};
static_assert(kCodesOfKinds.size() == static_cast<size_t>(last_of(ErrorKind{})) + 1);

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
  error.code_ = code_of_errno(errnum);
  return error;
}

bool Error::inconclusive() const {
  constexpr std::array<int, 10> kOfTheMachine = {EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC,
                                                 EDQUOT, EIO,    ESTALE, EINTR,   ETOOMANYREFS};
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

Error& Error::with_code(ErrorCode code) & {
  if (code_ == ErrorCode::none) code_ = code;
  return *this;
}

Error Error::in_words(std::string message) const {
  Error error = *this;
  error.message_ = std::move(message);
  return error;
}

ErrorCode Error::code() const {
  return code_ == ErrorCode::none ? kCodesOfKinds.at(static_cast<size_t>(kind_)) : code_;
}

std::string Error::line() const {
  return message_ + " [" + std::string(to_string(code())) + "]";
}

std::string Error::text() const {
  return hint_.empty() ? line() : line() + "\nhint: " + hint_;
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
