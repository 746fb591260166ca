// Which rules about registries count here? situla.toml, and registries.conf(5), the file of podman, skopeo and buildah.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/import_budget.hpp"
#include "common/spec/registry_rule.hpp"

namespace situla {

/// Where the rules are written, least important first but for `site`, which counts most. Files that are missing are
/// none.
struct RuleFiles {
  std::string site;                      ///< situla.toml
  std::string main;                      ///< a registries.conf
  std::vector<std::string> directories;  ///< their *.conf in the order of their names, one directory after the other
  bool of_root = false;                  ///< main and directories must be root's: they decide for everybody

  /// For the node's store: /etc/situla/situla.toml, /etc/containers/registries.conf and registries.conf.d. What the
  /// user wrote does not count.
  static RuleFiles of_node();
  /// For what a user's own process imports: the user's ~/.config/containers/registries.conf and registries.conf.d
  /// instead of the machine's where they exist, as registries.conf(5) says.
  static RuleFiles of_user(const Environment& environment);
};

/// The limits of situla.toml.
Result<ImportBudget> load_import_budget(const RuleFiles& files);

/// No two rules with one prefix. A file that is damaged is an error: it might block something.
Result<std::vector<RegistryRule>> load_registry_rules(const RuleFiles& files);

/// One registries.conf, of version 2 or 1; `file` names it in messages. Only what is about registries is looked at.
Result<std::vector<RegistryRule>> parse_registries_conf(std::string_view text, const std::string& file);

}  // namespace situla
