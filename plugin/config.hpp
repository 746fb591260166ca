// What do the plugin's words in plugstack.conf say? All keys of pyxis are understood; COMPAT.md section 1.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace situla {

struct PluginConfig {
  bool use_squashfuse = false;  ///< use_squashfuse=1: never let the kernel mount an image

  /// Words as Slurm splits them, each KEY=VALUE. An unknown key, or a value whose behavior is not built yet, is an
  /// error.
  static Result<PluginConfig> parse(std::span<const char* const> words);
};

}  // namespace situla
