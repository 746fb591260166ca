#include "hooks/inject/edits/edits.hpp"

#include <algorithm>
#include <utility>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// A later one at the same place wins, and stands where the earlier one stood.
template <typename Edit, typename Place>
void replace_or_add(std::vector<Edit>& edits, std::vector<Edit> more, Place Edit::*place) {
  for (Edit& edit : more) {
    const auto same =
        std::find_if(edits.begin(), edits.end(), [&](const Edit& other) { return other.*place == edit.*place; });
    if (same == edits.end())
      edits.push_back(std::move(edit));
    else
      *same = std::move(edit);
  }
}

template <typename Value>
void add_new(std::vector<Value>& values, std::vector<Value> more) {
  for (Value& value : more)
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
}

std::string suffix(const std::string& words, OnFailure on_failure) {
  std::string all = words;
  if (on_failure != OnFailure::fail) all += all.empty() ? "if possible" : ", if possible";
  return all.empty() ? "" : " [" + all + "]";
}

std::string number_text(const std::optional<DeviceNumber>& number) {
  if (!number) return "";
  return std::string(" (") + number->type + " " + std::to_string(number->major) + ":" + std::to_string(number->minor) +
         ")";
}

std::string describe(const FileChange& change) {
  std::string path = printable(change.path);
  switch (change.kind) {
    case FileChange::Kind::write:
      return "file " + path;
    case FileChange::Kind::link:
      return "link " + path + " -> " + printable(change.content);
    case FileChange::Kind::directory:
      return "directory " + path;
  }
  return path;
}

}  // namespace

bool ContainerEdits::empty() const {
  return environment.entries().empty() && covers.empty() && mounts.empty() && devices.empty() && files.empty() &&
         programs.empty() && libraries.empty();
}

void append(ContainerEdits& edits, ContainerEdits more) {
  edits.environment.merge(more.environment);
  replace_or_add(edits.covers, std::move(more.covers), &CoverEdit::target);
  replace_or_add(edits.mounts, std::move(more.mounts), &MountEdit::target);
  replace_or_add(edits.devices, std::move(more.devices), &DeviceEdit::target);
  replace_or_add(edits.files, std::move(more.files), &FileChange::path);
  std::move(more.programs.begin(), more.programs.end(), std::back_inserter(edits.programs));
  add_new(edits.libraries.libraries, std::move(more.libraries.libraries));
  add_new(edits.libraries.directories, std::move(more.libraries.directories));
  add_new(edits.libraries.preferred, std::move(more.libraries.preferred));
}

std::string describe(const ContainerEdits& edits) {
  std::string text;
  const auto line = [&](const std::string& words) { text += words + "\n"; };
  for (const auto& [name, value] : edits.environment.entries()) line("env " + name + "=" + printable(value));
  for (const CoverEdit& cover : edits.covers)
    line("cover " + printable(cover.target) + suffix(join(flag_words(cover.flags), ", "), cover.on_failure));
  for (const MountEdit& mount : edits.mounts)
    line("mount " + printable(mount.source) + " on " + printable(mount.target) +
         suffix(join(flag_words(mount.flags), ", "), mount.on_failure));
  for (const DeviceEdit& device : edits.devices)
    line("device " + printable(device.source) + " on " + printable(device.target) + number_text(device.number) +
         suffix("", device.on_failure));
  for (const FileChange& file : edits.files) line(describe(file));
  for (const ProgramEdit& program : edits.programs)
    line("run " + printable(program.path) + " " + printable(join(program.arguments, " ")));
  for (const CachedLibrary& library : edits.libraries.libraries)
    line("library " + printable(library.soname) + " " + printable(library.path) +
         (library.is_32bit ? " (32 bits)" : ""));
  for (const std::string& directory : edits.libraries.directories) line("libraries in " + printable(directory));
  for (const std::string& directory : edits.libraries.preferred) line("libraries first in " + printable(directory));
  return text;
}

}  // namespace situla
