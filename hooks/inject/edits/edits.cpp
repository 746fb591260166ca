#include "hooks/inject/edits/edits.hpp"

#include <algorithm>
#include <utility>

#include "common/base/text.hpp"

namespace situla {
namespace {

template <typename Value>
void add_new(std::vector<Value>& values, std::vector<Value> more) {
  for (Value& value : more)
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
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
  return environment.entries().empty() && mounts.empty() && files.empty() && programs.empty() && libraries.empty() &&
         mounts_after_hooks.empty();
}

void add_step(ContainerEdits& edits, MountStep step) {
  std::vector<MountStep>& all = edits.mounts;
  const auto same = std::find_if(all.begin(), all.end(), [&](const MountStep& other) {
    return other.kind == step.kind && other.target == step.target;
  });
  if (same != all.end()) {
    *same = std::move(step);
    return;
  }
  const auto later =
      std::find_if(all.begin(), all.end(), [&](const MountStep& other) { return other.kind > step.kind; });
  all.insert(later, std::move(step));
}

void append(ContainerEdits& edits, ContainerEdits more) {
  edits.environment.merge(more.environment);
  for (MountStep& step : more.mounts) add_step(edits, std::move(step));
  for (FileChange& file : more.files) {
    const auto same = std::find_if(edits.files.begin(), edits.files.end(),
                                   [&](const FileChange& other) { return other.path == file.path; });
    if (same == edits.files.end())
      edits.files.push_back(std::move(file));
    else
      *same = std::move(file);
  }
  std::move(more.programs.begin(), more.programs.end(), std::back_inserter(edits.programs));
  append(edits.libraries, std::move(more.libraries));
}

void append(LibraryCacheEdit& edit, LibraryCacheEdit more) {
  add_new(edit.libraries, std::move(more.libraries));
  add_new(edit.directories, std::move(more.directories));
  add_new(edit.preferred, std::move(more.preferred));
}

std::string describe(const ContainerEdits& edits) {
  std::string text;
  const auto line = [&](const std::string& words) { text += words + "\n"; };
  for (const auto& [name, value] : edits.environment.entries()) line("env " + name + "=" + printable(value));
  for (const MountStep& step : edits.mounts) line(describe(step));
  for (const FileChange& file : edits.files) line(describe(file));
  for (const ProgramEdit& program : edits.programs)
    line("run " + printable(program.path + (program.arguments.empty() ? "" : " " + join(program.arguments, " "))));
  for (const CachedLibrary& library : edits.libraries.libraries)
    line("library " + printable(library.soname) + " " + printable(library.path) +
         (library.is_32bit ? " (32 bits)" : ""));
  for (const std::string& directory : edits.libraries.directories) line("libraries in " + printable(directory));
  for (const std::string& directory : edits.libraries.preferred) line("libraries first in " + printable(directory));
  for (const MountStep& step : edits.mounts_after_hooks) line(describe(step));
  return text;
}

}  // namespace situla
