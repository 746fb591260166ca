// What does one environment definition file (EDF) say? TOML, in the form that CSCS documents for its container engine.
//
// Facts are from https://docs.cscs.ch/software/container-engine/edf/ (keys, types, defaults, references),
// .../container-engine/run/ (search path, what --environment takes), .../container-engine/resource-hook/ (annotations),
// and the user guide of Sarus Suite there (devices, rendering), as of 2026.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"

namespace situla::edf {

/// A value, and the line that says it: "FILE:LINE".
template <typename T>
struct Said {
  T value;
  std::string where;
};

struct EdfFile {
  std::vector<Said<std::string>> bases;
  std::optional<Said<std::string>> image, workdir;
  std::optional<Said<bool>> writable, entrypoint;
  std::vector<Said<std::string>> mounts, devices;
  /// Annotations by their whole names, "com.hooks.ssh.enabled".
  std::map<std::string, Said<std::string>> env, annotations;
  std::vector<Said<std::string>> device_mounts;  ///< of settle_values(): devices that are paths, as entries of mounts
  std::vector<Said<std::string>> ignored;        ///< keys of other engines

  /// What `next` says is put on top: it replaces values, adds to lists what they lack, and replaces entries of tables.
  /// Bases stay what they are.
  void add(EdfFile next);
};

struct EdfReading {
  EdfFile file;  ///< what of it is right
  std::vector<Error>
      problems;  ///< ErrorKind::usage, "FILE:LINE: ...", in the order of the file as far as that is known
};

/// `path` is for the messages.
EdfReading parse_edf(std::string_view text, const std::string& path);

}  // namespace situla::edf
