#include "hooks/import/enroot_files.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// A comment line for each line of the text, so that a label cannot end its comment.
std::string comment(std::string_view text) {
  std::string lines;
  for (const std::string_view line : split(text, '\n')) {
    std::string clean(line);
    std::replace(clean.begin(), clean.end(), '\r', ' ');
    lines += "# " + clean + "\n";
  }
  return lines;
}

/// Always quoted, as bash's ${x@Q} does.
std::string in_quotes(std::string_view word) {
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'')
      text += "'\\''";
    else
      text += c;
  }
  return text + "'";
}

std::string quoted_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + in_quotes(word);
  return text;
}

std::string double_quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '$' || c == '`') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

std::string make_rc(const ImageConfig& config, std::string_view uri) {
  std::string rc = comment("enroot-provenance: " + std::string(uri));
  for (const auto& [name, value] : config.labels) rc += comment(name + " " + value);
  rc += "\n";
  const std::string workdir = double_quoted(config.workdir.empty() ? "/" : config.workdir);
  // The import has made it; a process less for every start.
  rc += "[ -d " + workdir + " ] || mkdir -p " + workdir + " 2> /dev/null\n";
  rc += "cd " + workdir + " && unset OLDPWD || exit 1\n\n";
  rc += "if [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n";
  std::vector<std::string> command = config.command;
  if (command.empty() && config.entrypoint.empty()) command = {"/bin/sh"};
  const std::string entrypoint = quoted_words(config.entrypoint);
  rc += "if [ $# -gt 0 ]; then\n    exec" + entrypoint + " \"$@\"\n";
  rc += "else\n    exec" + entrypoint + quoted_words(command) + "\nfi\n";
  return rc;
}

std::string make_fstab(const ImageConfig& config) {
  std::string fstab;
  for (const std::string& volume : config.volumes) {
    if (!volume.starts_with('/') || volume.find_first_of("\n\r") != std::string::npos) continue;
    std::string escaped;
    for (const char c : volume) {
      if (c == ' ' || c == '\t')
        escaped += c == ' ' ? "\\040" : "\\011";
      else
        escaped += c;
    }
    fstab += "${ENROOT_ROOTFS}" + escaped + " " + escaped + " none x-create=dir,bind,rw,nosuid,nodev\n";
  }
  return fstab;
}

std::string make_environment(const ImageConfig& config) {
  std::string text;
  for (const std::string& line : config.environment) text += line + "\n";
  return text;
}

std::string make_rc_local() {
  return "# Sourced by /etc/rc when the container starts: change \"$@\" here to change what is run.\n";
}

}  // namespace situla
