// What do the plugin's words in plugstack.conf say? All keys of pyxis are understood, COMPAT.md section 1; the last
// one is our own.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/base/result.hpp"

namespace situla {

/// How long a named container stays on a node: until someone removes it, or until its job ends.
enum class ContainerScope : uint8_t { global, job };

/// Whose images a job's prolog begins to fetch.
enum class PrologPrefetch : uint8_t {
  none,
  jobs,  ///< of sbatch and salloc, whose steps come later
  all,   ///< of sruns that make an allocation, too
};

struct PluginConfig {
  ContainerScope scope = ContainerScope::global;  ///< container_scope=global|job
  bool execute_entrypoint = false;  ///< execute_entrypoint=1: run the image's entrypoint unless the user decides
  bool sbatch_support = true;       ///< sbatch_support=0: sbatch and salloc have no options, batch scripts no container
  std::string importer;             ///< importer=PATH: a site's program that gets images; absolute; empty: none
  std::string runtime_path;     ///< runtime_path=PATH: where that program finds a directory of the user; empty: ours
  bool use_squashfuse = false;  ///< use_squashfuse=1: never let the kernel mount an image
  PrologPrefetch prolog_prefetch = PrologPrefetch::jobs;  ///< prolog_prefetch=0|1|all

  /// Words as Slurm splits them, each KEY=VALUE; a key that comes twice counts as it comes last. An unknown key and a
  /// bad value are errors.
  static Result<PluginConfig> parse(std::span<const char* const> words);
};

}  // namespace situla
