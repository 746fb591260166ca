// Which variables does a process get? An ordered NAME=VALUE list in which a later definition wins.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"

namespace situla {

/// A small value type; order of first definition is kept. Names hold no '=' and no NUL; values hold no NUL.
class Environment {
 public:
  using Entry = std::pair<std::string, std::string>;

  Environment() = default;
  /// From a NULL-terminated envp as execve(2) takes it; entries without '=' are skipped.
  static Environment from_envp(const char* const* envp);
  /// From what strings() gives.
  static Environment from_strings(const std::vector<std::string>& entries);
  /// From NUL-separated NAME=VALUE bytes, the form of /proc/PID/environ.
  static Environment from_block(std::string_view block);

  [[nodiscard]] std::optional<std::string_view> get(std::string_view name) const;
  [[nodiscard]] std::string get_or(std::string_view name, std::string_view fallback) const;
  [[nodiscard]] bool has(std::string_view name) const { return get(name).has_value(); }
  void set(std::string_view name, std::string_view value);
  void unset(std::string_view name);
  void merge(const Environment& other);

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] std::string block() const;                 ///< NUL-separated, NUL-terminated
  [[nodiscard]] std::vector<std::string> strings() const;  ///< "NAME=VALUE" each

 private:
  std::vector<Entry> entries_;
};

/// For an srun whose command is to have no container, and whose output is read: without what options and variables of a
/// job say of containers, and of srun's output.
Environment for_plain_step(const Environment& environment);

/// POSIX variable name: [A-Za-z_][A-Za-z0-9_]*.
bool is_variable_name(std::string_view name);

/// Replaces $NAME and ${NAME}; an unknown variable becomes "". Nothing else is special: no command substitution, no
/// default values (COMPAT.md 1). `\$` gives a literal dollar sign. A '$' that starts no name stays as it is.
std::string expand_variables(std::string_view text, const Environment& environment);

/// "~" and "~/x" as a shell has them: no shell expands them behind an option's '='. Everything else stays as it is, and
/// all of it where HOME is not set or empty.
std::string expand_home(std::string_view path, const Environment& environment);

/// The value of a variable, or nullopt.
using VariableLookup = std::function<std::optional<std::string>(std::string_view name)>;

/// Replaces what environment files write (hooks/edf): ${NAME}, $NAME and ${NAME:-WORD}, which is WORD where NAME is
/// unset or empty; $$ is a dollar sign. ErrorKind::usage for an unknown variable, and for a "${" that is none of these.
Result<std::string> expand_references(std::string_view text, const VariableLookup& lookup);

}  // namespace situla
