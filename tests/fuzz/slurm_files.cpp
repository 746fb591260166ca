#include "hooks/doctor/slurm_files.hpp"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/file.hpp"
#include "hooks/doctor/report.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// Where Slurm's configuration lies for as long as this process runs.
class Place {
 public:
  Place() {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { (void)remove_tree(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/dev/shm/situla-fuzz-XXXXXX";
};

void write(const std::string& path, std::string_view bytes) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
}

}  // namespace

/// slurm.conf, and behind a line "plugstack" plugstack.conf, which may include each other.
void situla::fuzz(std::string_view bytes) {
  if (const auto version = doctor::parse_slurm_version(bytes)) {
    const auto again = doctor::parse_slurm_version("slurm " + version->text());
    if (!again || !again->fits(*version) || again->patch != version->patch) std::abort();
  }
  static const Place place;
  constexpr std::string_view kBetween = "\nplugstack\n";
  const size_t end = bytes.find(kBetween);
  write(place / "slurm.conf", bytes.substr(0, end));
  write(place / "plugstack.conf", end == bytes.npos ? bytes : bytes.substr(end + kBetween.size()));
  doctor::Places places;
  places.slurm_conf = place / "slurm.conf";
  const auto files = doctor::SlurmFiles::find(places, Environment());
  if (files.slurm_conf != places.slurm_conf || files.plugstack.empty()) std::abort();
  for (const doctor::PluginLine& line : files.lines) {
    if (line.rule.empty() || to_lower(line.rule) != line.rule) std::abort();
    for (const std::string& word : line.arguments)
      if (word.empty() || word.find_first_of("# \n") != std::string::npos) std::abort();
  }
  for (const doctor::PluginLine& line : files.loading("spank_situla.so"))
    if (!line.path.ends_with("spank_situla.so")) std::abort();
}
