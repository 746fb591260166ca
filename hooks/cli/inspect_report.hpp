// How is an image shown to a person, and to a program? Everything foreign becomes printable here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hooks/import/import.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla::cli {

/// A squashfs file, and what its /etc/rc, /etc/environment and /etc/fstab say.
struct FileDescription {
  std::string path;
  ImageInfo info;
  uint64_t file_bytes = 0;
  std::optional<std::string> source;  ///< "docker://...", from the provenance in /etc/rc
  std::vector<std::string> labels;    ///< as /etc/rc has them: "NAME VALUE"
  std::vector<std::string> environment;
  std::vector<std::string> mounts;  ///< lines of /etc/fstab
};

/// What /etc/rc says about where the image is from (COMPAT.md 5): its first comment, and the labels that follow.
void read_provenance(const std::string& rc, FileDescription& file);
/// The lines of /etc/environment or /etc/fstab that are neither empty nor comments.
std::vector<std::string> meaningful_lines(const std::string& text);

std::string text_report(const ImageDescription& image);
std::string text_report(const FileDescription& file);
/// One document, in ASCII.
std::string json_report(const ImageDescription& image);
std::string json_report(const FileDescription& file);

}  // namespace situla::cli
