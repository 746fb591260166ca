// Which CDI devices does this node have? Those in the specifications of a list of directories, later ones before
// earlier ones.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/inject/cdi/spec.hpp"

namespace situla {

struct CdiDeviceEntry {
  std::string name;  ///< "nvidia.com/gpu=0"
  std::string file;
};

/// The device and the specification that holds it; both belong to the registry.
struct CdiDevice {
  const cdi::Spec* spec = nullptr;
  const cdi::Device* device = nullptr;
};

class CdiRegistry {
 public:
  /// Reads every *.json and *.yaml directly in the directories. Cannot fail: a directory that is missing is empty, a
  /// file that is broken, or that somebody else may have written, is left out and its error kept.
  static CdiRegistry load(const std::vector<std::string>& directories);

  /// nullptr members when there is no such device, or two of them in one directory.
  [[nodiscard]] CdiDevice find(std::string_view name) const;
  /// By name.
  [[nodiscard]] std::vector<CdiDeviceEntry> devices() const;
  /// Devices of one kind, without it: "0", "all".
  [[nodiscard]] std::vector<std::string> names_of_kind(std::string_view kind) const;
  [[nodiscard]] std::vector<std::string> kinds() const;
  /// Of files left out and of devices that two files claim; each names the file.
  [[nodiscard]] const std::vector<Error>& errors() const { return errors_; }
  /// Those about files that declare this kind; "" for files of which not even that could be read.
  [[nodiscard]] std::vector<const Error*> errors_of_kind(std::string_view kind) const;
  [[nodiscard]] const std::vector<std::string>& directories() const { return directories_; }

 private:
  struct Claim {
    CdiDevice device;
    size_t priority = 0;
    bool disputed = false;
  };
  void read_directory(const std::string& directory, size_t priority);
  void read(const std::string& file, size_t priority);
  void add(std::unique_ptr<cdi::Spec> spec, size_t priority);
  void report(Error error, std::string kind);

  std::vector<std::string> directories_;
  std::vector<std::unique_ptr<const cdi::Spec>> specs_;
  std::map<std::string, Claim, std::less<>> claims_;  ///< by qualified name
  std::vector<Error> errors_;
  std::vector<std::string> error_kinds_;  ///< "" where unknown
};

}  // namespace situla
