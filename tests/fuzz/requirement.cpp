#include "hooks/inject/nvidia/requirement.hpp"

#include <cstdlib>
#include <string>

#include "common/base/text.hpp"
#include "tests/fuzz/target.hpp"

namespace {

std::string first_line(std::string_view& text) {
  const auto pieces = situla::cut(text, '\n');
  const std::string line(pieces ? pieces->first : text);
  text = pieces ? pieces->second : std::string_view();
  return line;
}

}  // namespace

/// A condition, and beneath it in lines of their own what is known of CUDA, driver, architecture and brand.
void situla::fuzz(std::string_view bytes) {
  using situla::nvidia::check_requirement;
  const std::string expression = first_line(bytes);
  const std::string cuda = first_line(bytes), driver = first_line(bytes), architecture = first_line(bytes);
  const situla::nvidia::Properties properties{cuda, driver, architecture, first_line(bytes)};
  const auto checked = check_requirement(expression, properties);
  // Another clause can only help where none was satisfied, and nothing where one was.
  const auto longer = check_requirement(expression + " cuda>=0", properties);
  if (checked && !longer) std::abort();
  if (!checked && checked.error().kind() != ErrorKind::usage && checked.error().kind() != ErrorKind::unsupported)
    std::abort();
  // Nothing that is unknown is held against a node.
  const auto unknown = check_requirement(expression, {});
  if (!unknown && unknown.error().kind() != ErrorKind::usage) std::abort();
}
