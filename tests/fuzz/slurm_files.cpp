#include "hooks/doctor/slurm_files.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "common/base/text.hpp"
#include "common/spec/plugin_arguments.hpp"
#include "hooks/doctor/report.hpp"
#include "tests/fuzz/place.hpp"
#include "tests/fuzz/target.hpp"

namespace {

/// What the plugin makes of them.
void check_arguments(const std::vector<std::string>& arguments) {
  using situla::PluginConfig;
  std::vector<const char*> words;
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  const auto config = PluginConfig::parse(words);
  if (!config) return;
  if (!config->importer.empty() && !config->importer.starts_with('/')) std::abort();
}

/// Files of this machine are left alone: a pattern may mean all of them, and some have no end.
bool names_other_files(std::string_view bytes) {
  for (const std::string_view line : situla::split(bytes, '\n')) {
    const std::string lower = situla::to_lower(line);
    const bool names = lower.find("include") != std::string::npos || lower.find("plugstackconfig") != std::string::npos;
    if (names && lower.find('/') != std::string::npos) return true;
  }
  return false;
}

}  // namespace

/// slurm.conf, and behind a line "plugstack" plugstack.conf, which may include each other.
void situla::fuzz(std::string_view bytes) {
  if (const auto version = doctor::parse_slurm_version(bytes)) {
    const auto again = doctor::parse_slurm_version("slurm " + version->text());
    if (!again || !again->fits(*version) || again->patch != version->patch) std::abort();
  }
  if (names_other_files(bytes)) return;
  static const Place place;
  constexpr std::string_view kBetween = "\nplugstack\n";
  const size_t end = bytes.find(kBetween);
  write_whole(place / "slurm.conf", bytes.substr(0, end));
  write_whole(place / "plugstack.conf", end == bytes.npos ? bytes : bytes.substr(end + kBetween.size()));
  doctor::Places places;
  places.slurm_conf = place / "slurm.conf";
  const auto files = doctor::SlurmFiles::find(places, Environment());
  if (files.slurm_conf != places.slurm_conf || files.plugstack.empty()) std::abort();
  for (const doctor::PluginLine& line : files.lines) {
    if (line.rule.empty() || to_lower(line.rule) != line.rule) std::abort();
    for (const std::string& word : line.arguments)
      if (word.empty() || word.find_first_of("# \n") != std::string::npos) std::abort();
    check_arguments(line.arguments);
  }
  for (const doctor::PluginLine& line : files.loading("spank_situla.so"))
    if (!line.path.ends_with("spank_situla.so")) std::abort();
}
