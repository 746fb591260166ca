// What does `situla doctor` say? Checks in sections, as text, as JSON and as lines of a log.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"

namespace situla {
class Json;
}

namespace situla::doctor {

/// info: nothing to judge, or nothing could be tried.
enum class State { ok, info, warn, fail };
std::string_view to_string(State state);

/// One line of the report.
struct Check {
  std::string name;  ///< stable, for scripts: "user-namespaces"
  State state = State::ok;
  std::string found;  ///< what is there, for people
  std::string fix;    ///< what to do about it, one line; never empty for warn and fail
  /// What `found` says, in parts, for scripts: {"uuid", "GPU-..."}.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

/// A line about an error, whose hint is what to do, or `fix` where it has none.
Check check_of(const std::string& name, State state, const Error& error, const std::string& fix);

struct Section {
  std::string name;   ///< stable, for scripts: "gpus"
  std::string title;  ///< for people
  std::vector<Check> lines;
  bool of_caller = false;  ///< its fixes are the caller's to make; those of other sections are root's
};

enum class Colours { none, terminal };
/// The title, a line per check, and fixes beneath them.
std::string to_text(const Section& section, Colours colours);

struct Report {
  std::string version;  ///< of Situla
  std::string host;
  std::string time;    ///< UTC, "2026-11-22T06:10:00Z"
  std::string kernel;  ///< "6.18.1"
  std::vector<Section> sections;
  std::string
      tier;  ///< how images become root file systems here: "kernel", "fuse", "extract" or "none"; empty: not asked
  std::string reason;    ///< why no better one: the check that stands in the way, or the setting; empty for "kernel"
  bool complete = true;  ///< false: the caller was not root, so what needs root was not tried and jobs may do better
  std::string gpus;      ///< "gpus=8 driver=580.95.05"; empty without NVIDIA's driver

  [[nodiscard]] size_t count(State state) const;
  [[nodiscard]] bool failed() const { return count(State::fail) > 0; }
  [[nodiscard]] State worst() const;  ///< fail, warn, or ok
  /// The first check of this name, or null.
  [[nodiscard]] const Check* find(std::string_view name) const;

  /// Sections with a line per check and fixes beneath them, then a line that sums up.
  [[nodiscard]] std::string text(Colours colours = Colours::none) const;
  [[nodiscard]] std::string json() const;  ///< situla-doctor(1) has the schema; kSchema is its version
  /// What slurmd logs when it starts: how images become root file systems and how many GPUs there are, then a line
  /// "error: ..." per failed check.
  [[nodiscard]] std::string brief() const;
};

/// What root alone can do, said to somebody else: "ask the administrator: modprobe loop". References to other lines
/// stay as they are.
std::string administrators_fix(const std::string& fix);
/// For a caller who is not root: all fixes of sections that are not the caller's.
void address_to_user(Report& report);

/// From Report::json() of any version of Situla; ErrorKind::corrupt.
Result<Report> parse_report(const std::string& json);

/// Changes when a key of json() goes or means something else; not when one is added.
constexpr int kSchema = 1;

/// One of `checks` in json().
Json to_json(const std::string& section, const Check& check);

/// The word in the colour of its state, filled up to `width`.
std::string paint(State state, std::string_view word, size_t width, Colours colours);

/// Where things are looked for; the defaults are where this build was installed.
struct Places {
  std::string site_config;
  std::string libexec;
  std::string plugin;   ///< spank_situla.so
  std::string runtime;  ///< /run/situla
  std::string proc = "/proc";
  std::string dev = "/dev";
  std::string sys = "/sys";
  std::string etc = "/etc";
  std::string run = "/run";
  std::string slurm_conf;  ///< slurm.conf; empty: where Slurm would find it
  static Places installed();
};

}  // namespace situla::doctor
