#include "hooks/cli/inspect_report.hpp"

#include <array>
#include <ctime>

#include <nlohmann/json.hpp>

#include "common/base/text.hpp"

namespace situla::cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kProvenance = "# enroot-provenance: ";
constexpr size_t kColumn = 13;

/// "Name:        value", more values under the first. Nothing for no value.
void field(std::string& out, std::string_view name, const std::vector<std::string>& values) {
  std::string head = std::string(name) + ":";
  for (const std::string& value : values) {
    head.resize(kColumn, ' ');
    out += head + printable(value) + "\n";
    head.clear();
  }
}

void field(std::string& out, std::string_view name, const std::string& value) {
  if (!value.empty()) field(out, name, std::vector<std::string>{value});
}

std::string words(const std::vector<std::string>& command) {
  std::vector<std::string> quoted;
  for (const std::string& word : command) quoted.push_back(shell_quote(word));
  return join(quoted, " ");
}

std::string exact_size(uint64_t bytes) {
  return format_size(bytes) + " (" + std::to_string(bytes) + " bytes)";
}

std::string utc(uint32_t seconds) {
  const time_t time = seconds;
  tm parts{};
  std::array<char, 32> text{};
  gmtime_r(&time, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string platform_text(const ImageConfig& config) {
  std::string text = config.os;
  for (const std::string& part : {config.architecture, config.variant})
    if (!part.empty()) text += (text.empty() ? "" : "/") + part;
  return text;
}

uint64_t total_bytes(const Manifest& manifest) {
  uint64_t total = 0;
  for (const Descriptor& layer : manifest.layers) total += layer.size;
  return total;
}

std::string layer_table(const Manifest& manifest) {
  size_t type_width = 0;
  for (const Descriptor& layer : manifest.layers) type_width = std::max(type_width, printable(layer.media_type).size());
  const size_t number_width = std::to_string(manifest.layers.size()).size();
  std::string out;
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const Descriptor& layer = manifest.layers[i];
    out += "  " + flush_right(std::to_string(i + 1), number_width) + "  " + layer.digest.text() + "  " +
           flush_left(printable(layer.media_type), type_width) + "  " + flush_right(format_size(layer.size), 10) + "\n";
  }
  return out;
}

/// Foreign bytes that are no UTF-8 are replaced, everything beyond ASCII is escaped.
std::string dump(const Json& json) {
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void read_provenance(const std::string& rc, FileDescription& file) {
  if (!rc.starts_with(kProvenance)) return;
  for (const std::string_view line : split(rc, '\n')) {
    if (line.starts_with(kProvenance) && !file.source)
      file.source = line.substr(kProvenance.size());
    else if (line.starts_with("# "))
      file.labels.emplace_back(line.substr(2));
    else
      return;
  }
}

std::vector<std::string> meaningful_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, '\n'))
    if (!trim(line).empty() && !trim(line).starts_with('#')) lines.emplace_back(line);
  return lines;
}

std::string text_report(const ImageDescription& image) {
  const ImageConfig& config = image.config;
  std::string out;
  field(out, "Image", image.source);
  field(out, "Digest", image.digest.text());
  field(out, "Media type", image.media_type);
  field(out, "Platform", platform_text(config));
  field(out, "Created", config.created);
  field(out, "User", config.user);
  field(out, "Workdir", config.workdir);
  field(out, "Entrypoint", words(config.entrypoint));
  field(out, "Cmd", words(config.command));
  field(out, "Env", config.environment);
  field(out, "Volumes", config.volumes);
  std::vector<std::string> labels;
  for (const auto& [name, value] : config.labels) labels.push_back(name + "=" + value);
  field(out, "Labels", labels);
  field(out, "Layers", std::to_string(image.manifest.layers.size()) + ", " + exact_size(total_bytes(image.manifest)));
  return out + layer_table(image.manifest);
}

std::string text_report(const FileDescription& file) {
  std::string out;
  field(out, "File", file.path);
  field(out, "Compressor", file.info.compressor);
  field(out, "Block size", format_size(file.info.block_size));
  field(out, "Size", exact_size(file.file_bytes));
  field(out, "Inodes", std::to_string(file.info.inodes));
  field(out, "Created", utc(file.info.modification_time));
  field(out, "Provenance", file.source.value_or("none: /etc/rc does not say which image this was"));
  field(out, "Labels", file.labels);
  field(out, "Env", file.environment);
  field(out, "Mounts", file.mounts);
  return out;
}

std::string json_report(const ImageDescription& image) {
  const ImageConfig& config = image.config;
  Json json;
  json["source"] = image.source;
  json["digest"] = image.digest.text();
  json["mediaType"] = image.media_type;
  json["platform"] = {{"os", config.os}, {"architecture", config.architecture}, {"variant", config.variant}};
  json["created"] = config.created;
  Json labels = Json::object();
  for (const auto& [name, value] : config.labels) labels[name] = value;
  json["config"] = {{"user", config.user},        {"workdir", config.workdir}, {"entrypoint", config.entrypoint},
                    {"cmd", config.command},      {"env", config.environment}, {"volumes", config.volumes},
                    {"labels", std::move(labels)}};
  json["layers"] = Json::array();
  for (const Descriptor& layer : image.manifest.layers)
    json["layers"].push_back({{"digest", layer.digest.text()}, {"mediaType", layer.media_type}, {"size", layer.size}});
  json["size"] = total_bytes(image.manifest);
  return dump(json);
}

std::string json_report(const FileDescription& file) {
  Json json;
  json["file"] = file.path;
  json["compressor"] = file.info.compressor;
  json["blockSize"] = file.info.block_size;
  json["size"] = file.file_bytes;
  json["inodes"] = file.info.inodes;
  json["created"] = utc(file.info.modification_time);
  json["source"] = file.source ? Json(*file.source) : Json();
  json["labels"] = file.labels;
  json["env"] = file.environment;
  json["mounts"] = file.mounts;
  return dump(json);
}

}  // namespace situla::cli
