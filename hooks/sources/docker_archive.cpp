#include <algorithm>
#include <map>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/sources/file_source.hpp"

namespace situla {
namespace {

constexpr size_t kMaxImages = 4096;

/// One element of manifest.json.
struct SavedImage {
  std::string config;
  std::vector<std::string> names, layers;
};

Result<std::vector<SavedImage>> parse_images(const std::string& text) {
  const Json json = parse_json(text).value_or(Json());
  if (json.find("schemaVersion") != nullptr)
    return fail(Error(ErrorKind::usage, "manifest.json: not one that 'docker save' wrote")
                    .with_code(ErrorCode::image_unsupported)
                    .with_hint("an archive with the files of 'skopeo copy dir:' has to be unpacked first: dir:PATH"));
  if (json.as_list() == nullptr || json.as_list()->size() > kMaxImages)
    return fail(ErrorKind::corrupt, "manifest.json: not a list of images");
  std::vector<SavedImage> images;
  for (const Json& item : *json.as_list()) {
    const Json* config = item.find("Config");
    if (config == nullptr || config->as_text() == nullptr)
      return fail(ErrorKind::corrupt, "manifest.json: an image without a configuration");
    images.push_back({*config->as_text(), item.texts("RepoTags"), item.texts("Layers")});
  }
  if (images.empty())
    return fail(
        Error(ErrorKind::not_found, "manifest.json: there is no image in it").with_code(ErrorCode::image_not_found));
  return images;
}

Result<std::vector<Digest>> parse_diff_ids(const std::string& config) {
  const auto json = parse_json(config);
  const Json* root = json ? json->find("rootfs") : nullptr;
  if (root == nullptr || root->as_object() == nullptr)
    return fail(ErrorKind::corrupt, "configuration: has no diff_ids");
  std::vector<Digest> digests;
  for (const std::string& text : root->texts("diff_ids")) {
    auto digest = Digest::parse(text);
    if (!digest) return fail(ErrorKind::corrupt, "configuration: diff_ids: " + digest.error().message());
    digests.push_back(*digest);
  }
  return digests;
}

/// Docker writes "ubuntu:22.04", podman "docker.io/library/ubuntu:22.04".
bool same_image(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto first = ImageReference::parse(a), second = ImageReference::parse(b);
  return first && second && first->text() == second->text();
}

/// The digest in "<hex>.json" and "blobs/sha256/<hex>".
std::optional<Digest> digest_in_name(std::string_view name) {
  if (const size_t slash = name.rfind('/'); slash != std::string_view::npos) name.remove_prefix(slash + 1);
  if (name.ends_with(".json")) name.remove_suffix(5);
  auto digest = Digest::parse_hex(name);
  if (!digest) return std::nullopt;
  return *digest;
}

class DockerArchiveSource final : public FileSource {
 public:
  DockerArchiveSource(std::unique_ptr<ImageFiles> files, FileReference reference, std::string text)
      : FileSource(std::move(files), std::move(text)), reference_(std::move(reference)) {}

  Result<ResolvedImage> resolve(const Platform&) override {
    TRY_ASSIGN(const FileRange file, files().open("manifest.json"));
    TRY_ASSIGN(const std::string text, read_manifest(file, "manifest.json"));
    TRY_ASSIGN(const auto images, parse_images(text));
    TRY_ASSIGN(const SavedImage image, choose(images));
    TRY_ASSIGN(const FileRange range, files().open(image.config));
    TRY_ASSIGN(const std::string config,
               read_range(range, budget().config_size, "config_size", "configuration " + excerpt(image.config)));
    ResolvedImage resolved;
    resolved.digest = digest_of(config);
    if (const auto named = digest_in_name(image.config); named && *named != resolved.digest)
      return fail(Error(ErrorKind::corrupt, "configuration " + excerpt(image.config) + ": its content has the digest " +
                                                resolved.digest.text())
                      .with_code(ErrorCode::image_damaged)
                      .with_hint("the archive is damaged: save the image again"));
    names_.emplace(resolved.digest, image.config);
    resolved.manifest.config = {resolved.digest, config.size(), ""};
    TRY_ASSIGN(resolved.manifest.layers, layers_of(image, config));
    return resolved;
  }

 private:
  [[nodiscard]] std::string file_of(const Digest& digest) const override {
    const auto found = names_.find(digest);
    return found == names_.end() ? digest.text() : found->second;
  }

  Result<SavedImage> choose(const std::vector<SavedImage>& images) const {
    if (reference_.index) {
      if (*reference_.index < images.size()) return images[*reference_.index];
      return fail(Error(ErrorKind::not_found, "manifest.json: has only " + std::to_string(images.size()) + " images")
                      .with_code(ErrorCode::image_not_found));
    }
    if (reference_.name.empty() && images.size() == 1) return images.front();
    std::string known;
    size_t shown = 0;
    for (const SavedImage& image : images)
      for (const std::string& name : image.names) {
        if (!reference_.name.empty() && same_image(name, reference_.name)) return image;
        if (shown++ < kMaxNamesShown) known += (known.empty() ? "" : ", ") + excerpt(name);
      }
    const std::string hint = known.empty() ? "its images have no names: choose by place, with :@0 behind the path"
                                           : "it has " + known + ": write one behind the path, with a ':' between";
    if (reference_.name.empty())
      return fail(Error(ErrorKind::usage, "manifest.json: there are several images in it")
                      .with_code(ErrorCode::image_name)
                      .with_hint(hint));
    return fail(Error(ErrorKind::not_found, "manifest.json: there is no image " + printable(reference_.name))
                    .with_code(ErrorCode::image_not_found)
                    .with_hint(hint));
  }

  Result<std::vector<Descriptor>> layers_of(const SavedImage& image, const std::string& config) {
    TRY_ASSIGN(const std::vector<Digest> digests, parse_diff_ids(config));
    if (digests.size() != image.layers.size())
      return fail(ErrorKind::corrupt, "manifest.json: has " + std::to_string(image.layers.size()) +
                                          " layers, the configuration " + std::to_string(digests.size()));
    std::vector<Descriptor> layers;
    for (size_t i = 0; i < digests.size(); ++i) {
      // The same content may be there twice, compressed in two ways: the first is taken for both.
      const std::string& name = names_.emplace(digests[i], image.layers[i]).first->second;
      auto file = files().open(name);
      if (!file)
        return fail(std::move(file)
                        .error()
                        .with_context("layer " + std::to_string(i + 1) + " of " + std::to_string(digests.size()))
                        .with_code(ErrorCode::image_damaged)
                        .with_hint("the archive is incomplete: save the image again"));
      layers.push_back({digests[i], file->size, "", {}, true});
    }
    return layers;
  }

  FileReference reference_;
  std::map<Digest, std::string> names_;
};

}  // namespace

Result<std::unique_ptr<ImageSource>> make_docker_archive_source(std::unique_ptr<ImageFiles> files,
                                                                FileReference reference, std::string text) {
  const bool saved = files->open("manifest.json").has_value();
  if (!saved && files->open("index.json")) return make_oci_source(std::move(files), std::move(reference));
  if (!saved)
    return fail(Error(files->open("repositories") ? ErrorKind::unsupported : ErrorKind::usage,
                      text + ": there is no manifest.json in it")
                    .with_code(ErrorCode::image_unsupported)
                    .with_hint(files->open("repositories")
                                   ? "a Docker before 1.10 wrote it: load it with a current one, and save it again"
                                   : "'docker save' writes such an archive; 'docker export' writes none that can be "
                                     "imported"));
  return std::make_unique<DockerArchiveSource>(std::move(files), std::move(reference), std::move(text));
}

}  // namespace situla
