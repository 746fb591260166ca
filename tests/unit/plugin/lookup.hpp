// Variables as srun's plugin looks them up, out of a table of a test.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "plugin/options.hpp"

namespace situla::test {

inline ContainerOptions::Lookup variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace situla::test
