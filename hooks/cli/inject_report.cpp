#include "hooks/cli/inject_report.hpp"

#include <nlohmann/json.hpp>

namespace situla::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const MountStep& step) {
  Json document;
  if (step.kind != StepKind::cover) document["source"] = step.source;
  document["target"] = step.target;
  if (step.number) {
    document["type"] = std::string(1, step.number->type);
    document["major"] = step.number->major;
    document["minor"] = step.number->minor;
  }
  if (step.kind == StepKind::host_file) document["recursive"] = step.recursive;
  if (step.kind != StepKind::device) document["options"] = flag_words(step.flags);
  document["required"] = step.on_failure == OnFailure::fail;
  document["origin"] = step.origin;
  return document;
}

Json as_json(const FileChange& file) {
  switch (file.kind) {
    case FileChange::Kind::link:
      return {{"kind", "link"}, {"path", file.path}, {"target", file.content}};
    case FileChange::Kind::directory:
      return {{"kind", "directory"}, {"path", file.path}, {"mode", file.mode}};
    case FileChange::Kind::write:
      break;
  }
  return {{"kind", "file"}, {"path", file.path}, {"mode", file.mode}, {"content", file.content}};
}

Json as_json(const ProgramEdit& program) {
  return {{"path", program.path},
          {"arguments", program.arguments},
          {"environment", program.environment},
          {"origin", program.origin}};
}

Json as_json(const CachedLibrary& library) {
  return {{"soname", library.soname}, {"path", library.path}, {"bits", library.is_32bit ? 32 : 64}};
}

template <typename Edit>
Json list(const std::vector<Edit>& edits) {
  Json array = Json::array();
  for (const Edit& edit : edits) array.push_back(as_json(edit));
  return array;
}

Json steps(const ContainerEdits& edits, StepKind kind) {
  Json array = Json::array();
  for (const MountStep& step : edits.mounts)
    if (step.kind == kind) array.push_back(as_json(step));
  return array;
}

}  // namespace

std::string json_report(const ContainerEdits& edits) {
  Json document;
  document["environment"] = Json::object();
  for (const auto& [name, value] : edits.environment.entries()) document["environment"][name] = value;
  document["covers"] = steps(edits, StepKind::cover);
  document["mounts"] = steps(edits, StepKind::host_file);
  document["devices"] = steps(edits, StepKind::device);
  document["files"] = list(edits.files);
  document["programs"] = list(edits.programs);
  document["libraries"] = {{"files", list(edits.libraries.libraries)},
                           {"directories", edits.libraries.directories},
                           {"preferredDirectories", edits.libraries.preferred}};
  // Paths may be any bytes; a reader of JSON wants UTF-8.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace situla::cli
