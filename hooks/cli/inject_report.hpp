// How is a plan of edits shown by `situla inject`?
#pragma once

#include <string>

#include "hooks/inject/edits/edits.hpp"

namespace situla::cli {

/// One document; the text for people is describe(edits). Lists are in the order of application; every edit says who
/// asked for it ("origin").
std::string json_report(const ContainerEdits& edits);

}  // namespace situla::cli
