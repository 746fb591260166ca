// What do enroot.conf, enroot.conf.d and the user's environment say? COMPAT.md section 4. Never used for privileged
// decisions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/config/config_lines.hpp"

namespace situla {

/// The value of every ENROOT_*, MELLANOX_*, NVIDIA_*, SSL_CERT_* and *_proxy key: environment beats files unless empty,
/// the first definition in the files wins, the rest are enroot's defaults.
class EnrootConfig {
 public:
  /// Reads `sysconf`/enroot.conf and then `sysconf`/enroot.conf.d/*.conf (sysconf: $ENROOT_SYSCONF_PATH or
  /// /etc/enroot). Values go through a shell (`eval echo`), as the calling user, one shell for all files. Ill-formed
  /// lines warn.
  static Result<EnrootConfig> load(const Environment& environment, LogSink& log);

  /// Directives of a configuration script: lines `#ENROOT_X=value`, evaluated like those of files. They beat
  /// environment and files, and the last one counts. `where` names the script in warnings.
  Result<void> apply_directives(std::string_view script, const std::string& where, LogSink& log);
  /// An option of the command line beats everything.
  void set(std::string_view name, std::string_view value);

  /// Explicit value or enroot's default; empty when neither exists. Names in full: "ENROOT_DATA_PATH".
  [[nodiscard]] std::string get(std::string_view name) const;
  /// COMPAT.md 4: false is exactly n no N NO No f F false False FALSE; empty is `fallback`; everything else is true.
  [[nodiscard]] bool flag(std::string_view name, bool fallback = false) const;
  /// Everything explicitly set (files and environment), to be exported to hooks and the importer.
  [[nodiscard]] const std::map<std::string, std::string, std::less<>>& values() const { return values_; }
  /// What hooks and configuration scripts see of it: every key with its value or default, directories included; keys
  /// that are false are absent, so that scripts can ask whether they are empty.
  [[nodiscard]] Environment exported() const;

  /// ErrorKind::usage when a key that is yes or no has a value like "ja", which enroot takes for yes. Its "0" and
  /// "off", which mean yes as well (COMPAT.md 4), only warn.
  Result<void> check_flags(LogSink& log) const;

  /// Every ENROOT_* key that has a meaning, for `info`.
  static std::vector<std::string_view> known_keys();
  /// The lines of all files, with which of them count.
  [[nodiscard]] const std::vector<ConfigLine>& lines() const { return lines_; }
  /// Where the value of a key comes from: "/etc/enroot/enroot.conf:3", "environment" or "default". As it was loaded.
  [[nodiscard]] std::string origin(std::string_view name) const;
  /// ENROOT_* keys with a value that nothing reads, unless a site's own script does.
  [[nodiscard]] std::vector<std::string> unknown_keys() const;

  [[nodiscard]] std::string sysconf_path() const;  ///< ENROOT_SYSCONF_PATH, /etc/enroot
  [[nodiscard]] std::string config_path() const;   ///< ENROOT_CONFIG_PATH, $XDG_CONFIG_HOME/enroot, ~/.config/enroot
  [[nodiscard]] std::string data_path() const;     ///< ENROOT_DATA_PATH, $XDG_DATA_HOME/enroot, ~/.local/share/enroot
  [[nodiscard]] std::string cache_path() const;    ///< ENROOT_CACHE_PATH, $XDG_CACHE_HOME/enroot, ~/.cache/enroot
  [[nodiscard]] std::string runtime_path() const;  ///< ENROOT_RUNTIME_PATH, $XDG_RUNTIME_DIR/enroot, else under /tmp
  [[nodiscard]] std::string temp_path() const;     ///< ENROOT_TEMP_PATH, $TMPDIR, /tmp

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<ConfigLine> lines_;
  Environment environment_;
};

}  // namespace situla
