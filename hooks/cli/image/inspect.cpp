// inspect: what an image is, without fetching or unpacking it. Everything foreign becomes printable here.
#include <array>
#include <ctime>
#include <optional>
#include <ostream>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/json.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/import/import.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla::cli {
namespace {

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

std::string utc(time_t time) {
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

/// What /etc/rc says about where the image is from (COMPAT.md 5): its first comment, and the labels that follow.
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

/// The lines of /etc/environment or /etc/fstab that are neither empty nor comments.
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

constexpr JsonLayout kAscii{.indent = 2, .ascii = true};

std::string json_report(const ImageDescription& image) {
  const ImageConfig& config = image.config;
  Json layers = Json::list();
  for (const Descriptor& layer : image.manifest.layers)
    layers.add(Json::object({{"digest", layer.digest.text()}, {"mediaType", layer.media_type}, {"size", layer.size}}));
  const Json json = Json::object(
      {{"source", image.source},
       {"digest", image.digest.text()},
       {"mediaType", image.media_type},
       {"platform",
        Json::object({{"os", config.os}, {"architecture", config.architecture}, {"variant", config.variant}})},
       {"created", config.created},
       {"config", Json::object({{"user", config.user},
                                {"workdir", config.workdir},
                                {"entrypoint", config.entrypoint},
                                {"cmd", config.command},
                                {"env", config.environment},
                                {"volumes", config.volumes},
                                {"labels", Json::object_of(config.labels)}})},
       {"layers", std::move(layers)},
       {"size", total_bytes(image.manifest)}});
  return to_text(json, kAscii);
}

std::string json_report(const FileDescription& file) {
  const Json json = Json::object({{"file", file.path},
                                  {"compressor", file.info.compressor},
                                  {"blockSize", file.info.block_size},
                                  {"size", file.file_bytes},
                                  {"inodes", file.info.inodes},
                                  {"created", utc(file.info.modification_time)},
                                  {"source", file.source},
                                  {"labels", file.labels},
                                  {"env", file.environment},
                                  {"mounts", file.mounts}});
  return to_text(json, kAscii);
}

struct InspectOptions : ImageArguments {
  bool json = false, raw = false;
};

/// A path, or a name that no registry's image is likely to have and that import gives its files.
bool names_file(const std::string& image) {
  return image_kind(image) == ImageKind::path || (image.find("://") == std::string::npos && image.ends_with(".sqsh"));
}

/// Content of a file that an image may have; empty if it has none.
Result<std::string> file_of(int image, const std::string& path) {
  auto content = read_image_file(image, path);
  if (content) return content;
  const ErrorKind kind = content.error().kind();
  const bool none = kind == ErrorKind::not_found || kind == ErrorKind::usage || content.error().errnum() == ENOTDIR;
  if (none) return std::string();
  return content;
}

Result<FileDescription> describe_file(int image, const std::string& path) {
  FileDescription file;
  file.path = path;
  TRY_ASSIGN(file.info, read_image_info(image));
  struct stat status {};
  if (fstat(image, &status) != 0) return fail_errno(errno, "inspect " + path);
  file.file_bytes = static_cast<uint64_t>(status.st_size);
  TRY_ASSIGN(const std::string rc, file_of(image, "/etc/rc"));
  read_provenance(rc, file);
  TRY_ASSIGN(const std::string environment, file_of(image, "/etc/environment"));
  file.environment = meaningful_lines(environment);
  TRY_ASSIGN(const std::string fstab, file_of(image, "/etc/fstab"));
  file.mounts = meaningful_lines(fstab);
  return file;
}

Result<int> inspect_file(const Context& context, const InspectOptions& options) {
  if (options.raw || !options.architecture.empty())
    return fail(Error(ErrorKind::usage, "inspect " + printable(options.image) +
                                            ": --raw and --arch are about images in registries, not about files")
                    .with_code(ErrorCode::option));
  auto image = open_file(options.image, O_RDONLY | O_NONBLOCK);  // not to wait for a pipe's writer
  if (!image && image.error().kind() == ErrorKind::not_found) return fail(no_such_image(options.image));
  if (!image) return fail(std::move(image).error());
  auto file = describe_file(image->get(), options.image);
  if (!file) return fail(std::move(file).error().with_context("inspect " + printable(options.image)));
  context.streams.out << (options.json ? json_report(*file) : text_report(*file));
  return 0;
}

/// A container that `list` shows. Of a layered one the image is a file of its own, which is described as one.
Result<int> inspect_container(const Context& context, const InspectOptions& options, const NamedContainer& container) {
  if (options.raw || !options.architecture.empty())
    return fail(Error(ErrorKind::usage, "inspect " + printable(options.image) +
                                            ": --raw and --arch are about images in registries, not about containers")
                    .with_code(ErrorCode::option)
                    .with_hint("write docker://" + printable(options.image) + " for the image of that name"));
  const auto origin = container.directory ? origin_of(container.directory->get()) : std::nullopt;
  const bool layered = container.kind == NamedContainer::Kind::layered;
  const uint64_t bytes = disk_usage(container.path);
  const std::string made = origin ? utc(std::chrono::system_clock::to_time_t(origin->made)) : "";
  FileDescription file;
  if (layered) {
    TRY_ASSIGN(const UniqueFd image, open_file(container.image(), O_RDONLY));
    TRY_ASSIGN(file, describe_file(image.get(), container.path + "/.situla/image.sqsh"));
  }
  if (options.json) {
    Json json = Json::object({{"container", container.name},
                              {"path", container.path},
                              {"kind", layered ? "layered" : "tree"},
                              {"bytes", bytes}});
    json.add("image", origin ? Json(origin->image) : Json());
    json.add("made", origin ? Json(made) : Json());
    json.add("source", file.source);
    json.add("env", file.environment);
    json.add("labels", file.labels);
    json.add("mounts", file.mounts);
    context.streams.out << to_text(json, kAscii);
    return 0;
  }
  std::string out;
  field(out, "Container", container.name);
  field(out, "Path", container.path);
  field(out, "Kind", layered ? "layers over a copy of the image" : "directory tree");
  field(out, "Image", origin ? origin->image : "not known");
  field(out, "Made", made);
  field(out, "Size", exact_size(bytes));
  field(out, "Provenance", file.source.value_or(""));
  field(out, "Labels", file.labels);
  field(out, "Env", file.environment);
  field(out, "Mounts", file.mounts);
  context.streams.out << out;
  return 0;
}

Result<int> inspect(const Context& context, const InspectOptions& options) {
  if (options.raw && options.json)
    return fail(Error(ErrorKind::usage, "inspect: --raw and --json exclude each other").with_code(ErrorCode::option));
  if (const auto container = find_container(context.config, options.image))
    return inspect_container(context, options, *container);
  if (names_file(options.image)) return inspect_file(context, options);
  const KeepSecrets secrets;
  TRY_ASSIGN(const ImportRequest request, options.request(context));
  TRY_ASSIGN(const ImageDescription image, describe_image(request, context.log));
  if (options.raw && image.bytes.empty())
    return fail(ErrorKind::unsupported, "inspect " + printable(options.image) + ": its source has no manifest to show");
  if (options.raw)
    context.streams.out << image.bytes;
  else
    context.streams.out << (options.json ? json_report(image) : text_report(image));
  return 0;
}

}  // namespace

void add_inspect(Program& program, Actions& actions) {
  const auto [command, options] = add_command(
      program, actions, "inspect", "Show what an image in a registry, a squashfs file or a container is", inspect);
  options.declare(command, "IMAGE",
                  "As for import, the path of a squashfs file (FILE.sqsh), or the name of a container");
  command.flag("--json", options.json, "Print one JSON document");
  command.flag("--raw", options.raw, "Print the manifest as the registry serves it");
}

}  // namespace situla::cli
