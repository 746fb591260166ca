// What do the C++ library and others throw when the machine runs short, as an error?
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "common/base/result.hpp"

namespace situla {

/// The result of run(). Memory that is not there (std::bad_alloc) and a thread that does not start (std::system_error)
/// are an Error like any other, instead of the end of the program without a word.
template <typename Run>
[[nodiscard]] auto with_thrown_errors(Run run) -> decltype(run()) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return fail_errno(ENOMEM, "allocate memory");
  } catch (const std::system_error& error) {
    return fail_errno(error.code().value(), "start a thread");
  } catch (const std::exception& error) {
    return fail(ErrorKind::failure, error.what());
  }
}

}  // namespace situla
