// What does the manual say of an error's code? The sections of situla-errors(7), which is compiled in.
#pragma once

#include <string>
#include <string_view>

#include "common/base/error_code.hpp"

namespace situla::cli {

/// Columns, as it is printed.
constexpr size_t kManualWidth = 80;

/// Its section as plain text in lines of at most `width` characters, paragraphs apart; empty for ErrorCode::none.
std::string manual_section(ErrorCode code, size_t width);

/// The first sentence of it, in one line.
std::string manual_summary(ErrorCode code);

/// The page itself, as its source is written; for the test that compares it with the list of codes.
std::string_view errors_manual();

}  // namespace situla::cli
