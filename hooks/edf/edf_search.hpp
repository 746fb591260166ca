// Where are environment files, and which of them does a name mean?
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"

namespace situla::edf {

/// What there is around the files. A value, so that tests can have another one.
struct EdfPlaces {
  std::vector<std::string> directories;  ///< EDF_PATH, else ~/.edf; then the site's
  std::string current;                   ///< what ./ is relative to: where srun was called, not where the file is
  Environment variables;                 ///< what references mean

  static EdfPlaces of(const Environment& environment, std::string current, const std::string& site_directory);
  [[nodiscard]] VariableLookup lookup() const;
  /// ./X and ../X from the current directory; everything else as it is.
  [[nodiscard]] std::string absolute(const std::string& path) const;
};

struct ListedEdf {
  std::string name, path;
  bool hidden = false;  ///< a directory before this one has the name
};

/// All files of the directories, in the order of the search.
std::vector<ListedEdf> list_edfs(const EdfPlaces& places);

/// The path of the file that --environment or base_environment names: something with a '/' or the ending ".toml" is a
/// path, anything else a name in the directories. ErrorKind::not_found names what is near.
Result<std::string> find_edf(const std::string& name, const EdfPlaces& places);

/// As the calling user; at most 1 MiB, and only of a regular file.
Result<std::string> read_edf(const std::string& path);

}  // namespace situla::edf
