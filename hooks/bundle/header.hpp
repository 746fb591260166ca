// What does a bundle begin with? The text of header.sh.in, built in; words between @ are filled in by make_bundle().
#pragma once

#include <string_view>

namespace situla::builtin {

extern const std::string_view kBundleHeader;

}  // namespace situla::builtin
