#include "hooks/cli/inject_report.hpp"

#include <nlohmann/json.hpp>

namespace situla::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const CoverEdit& cover) {
  return {{"target", cover.target},
          {"options", flag_words(cover.flags)},
          {"required", cover.on_failure == OnFailure::fail},
          {"origin", cover.origin}};
}

Json as_json(const MountEdit& mount) {
  return {{"source", mount.source},
          {"target", mount.target},
          {"recursive", mount.recursive},
          {"options", flag_words(mount.flags)},
          {"required", mount.on_failure == OnFailure::fail},
          {"origin", mount.origin}};
}

Json as_json(const DeviceEdit& device) {
  Json document = {{"source", device.source}, {"target", device.target}};
  if (device.number) {
    document["type"] = std::string(1, device.number->type);
    document["major"] = device.number->major;
    document["minor"] = device.number->minor;
  }
  document["required"] = device.on_failure == OnFailure::fail;
  document["origin"] = device.origin;
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

}  // namespace

std::string json_report(const ContainerEdits& edits) {
  Json document;
  document["environment"] = Json::object();
  for (const auto& [name, value] : edits.environment.entries()) document["environment"][name] = value;
  document["covers"] = list(edits.covers);
  document["mounts"] = list(edits.mounts);
  document["devices"] = list(edits.devices);
  document["files"] = list(edits.files);
  document["programs"] = list(edits.programs);
  document["libraries"] = {{"files", list(edits.libraries.libraries)},
                           {"directories", edits.libraries.directories},
                           {"preferredDirectories", edits.libraries.preferred}};
  // Paths may be any bytes; a reader of JSON wants UTF-8.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace situla::cli
