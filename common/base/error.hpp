// What went wrong, on which operand, why, and what to do about it?
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/base/error_code.hpp"

namespace situla {

/// What a caller may want to decide on. Everything else about an error is for the reader of the message.
enum class ErrorKind {
  failure,      ///< the operation failed; see the message
  usage,        ///< the caller's input is wrong (option, reference, configuration line)
  not_found,    ///< the named thing does not exist
  exists,       ///< the named thing exists already
  denied,       ///< permission or credentials
  network,      ///< could not reach, or lost, the other side; trying again may help
  corrupt,      ///< data does not match its digest, size or format
  no_space,     ///< disk, quota or memory exhausted
  unsupported,  ///< this kernel, build or release cannot do it; a fallback may
  cancelled,    ///< asked to stop
  unreachable,  ///< the other side is not there: an unknown host, nobody who listens; to try again at once is no use
};
constexpr ErrorKind last_of(ErrorKind) {
  return ErrorKind::unreachable;
}

/// An error is made once, where it happens, as verb + operand ("open /etc/x"), and each meaningful layer puts one
/// phrase in front. It is printed once, at the boundary. No "failed to", no trailing full stop.
class Error {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  /// "<what>: <strerror(errnum)>", with the kind that fits the errno. Capture errno in the very expression:
  /// `return fail_errno(errno, "open " + path)`.
  static Error from_errno(int errnum, std::string_view what);

  /// Puts "<phrase>: " in front of the message.
  Error& with_context(std::string_view phrase) &;
  Error&& with_context(std::string_view phrase) && { return std::move(with_context(phrase)); }

  /// Sets the hint unless a deeper layer, which knew more, already gave one.
  Error& with_hint(std::string_view hint) &;
  Error&& with_hint(std::string_view hint) && { return std::move(with_hint(hint)); }

  /// Under which the manual explains it; unless a deeper layer, which knew more, already gave one.
  Error& with_code(ErrorCode code) &;
  Error&& with_code(ErrorCode code) && { return std::move(with_code(code)); }

  /// The same error, its code and its hint, said in other words.
  [[nodiscard]] Error in_words(std::string message) const;

  [[nodiscard]] ErrorKind kind() const { return kind_; }
  /// Its own, or what its errno or its kind stands for; never ErrorCode::none.
  [[nodiscard]] ErrorCode code() const;
  /// The errno it came from, or 0.
  [[nodiscard]] int errnum() const { return errnum_; }
  /// The machine could not do it just now: no descriptors, memory or room, a disk or server that fails, a signal. It
  /// says nothing about what was asked for: what may be missing or refused is not known to be.
  [[nodiscard]] bool inconclusive() const;
  [[nodiscard]] const std::string& message() const { return message_; }
  /// One line of advice, or empty.
  [[nodiscard]] const std::string& hint() const { return hint_; }
  /// The message with its code behind: "open /etc/x: No such file or directory [not-found]". For the one place that
  /// shows it; a message that goes into another one has no code.
  [[nodiscard]] std::string line() const;
  /// line(), and "\nhint: ..." when there is a hint.
  [[nodiscard]] std::string text() const;

 private:
  friend struct SentError;

  ErrorKind kind_;
  ErrorCode code_ = ErrorCode::none;
  int errnum_ = 0;
  std::string message_;
  std::string hint_;
};

/// An error on its way to another process, for common/base/wire.hpp. Its errno stays behind.
struct SentError {
  ErrorKind kind = ErrorKind::failure;
  std::string text;
  std::string hint;
  ErrorCode code = ErrorCode::none;

  static SentError of(const Error& error) { return {error.kind_, error.message_, error.hint_, error.code_}; }
  [[nodiscard]] Error error() const { return Error(kind, text).with_hint(hint).with_code(code); }

  static auto fields(auto& sent) { return std::tie(sent.kind, sent.text, sent.hint, sent.code); }
};

/// Name of a kind as sent over a protocol ("not_found"), and back. Unknown names become ErrorKind::failure.
std::string_view to_string(ErrorKind kind);
ErrorKind error_kind_from_string(std::string_view name);

}  // namespace situla
