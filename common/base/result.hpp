// How does a function that can fail return? As Result<T>: a value or an Error. Exceptions are for bugs.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

#include "common/base/error.hpp"

namespace situla {

template <typename T>
using Result = tl::expected<T, Error>;

/// `return fail(ErrorKind::usage, "...")`
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error(kind, std::move(message)));
}

[[nodiscard]] inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

/// `return fail_errno(errno, "open " + path)`. errno is captured in the very expression that made it.
[[nodiscard]] inline tl::unexpected<Error> fail_errno(int errnum, std::string_view what) {
  return tl::unexpected<Error>(Error::from_errno(errnum, what));
}

}  // namespace situla

#define SITULA_CONCAT_(a, b) a##b
#define SITULA_CONCAT(a, b) SITULA_CONCAT_(a, b)

/// TRY(expr): return the error of a Result<void> (or ignore the value of a Result<T>) from the enclosing function.
#define TRY(expr)                                                            \
  do {                                                                       \
    if (auto try_result = (expr); !try_result) [[unlikely]]                  \
      return tl::unexpected<::situla::Error>(std::move(try_result).error()); \
  } while (false)

/// TRY_CONTEXT(phrase, expr): the same, with a phrase put in front of the message.
#define TRY_CONTEXT(phrase, expr)                                                                 \
  do {                                                                                            \
    if (auto try_result = (expr); !try_result) [[unlikely]]                                       \
      return tl::unexpected<::situla::Error>(std::move(try_result).error().with_context(phrase)); \
  } while (false)

/// TRY_ASSIGN(auto x, expr): declare or assign x from the value of a Result<T>, or return its error.
#define TRY_ASSIGN(target, expr) SITULA_TRY_ASSIGN_(SITULA_CONCAT(try_value_, __LINE__), target, expr)
#define SITULA_TRY_ASSIGN_(name, target, expr)                       \
  auto name = (expr);                                                \
  if (!name) [[unlikely]]                                            \
    return tl::unexpected<::situla::Error>(std::move(name).error()); \
  target = std::move(*name)
