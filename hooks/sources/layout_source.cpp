#include <algorithm>
#include <set>

#include "common/base/text.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/sources/file_source.hpp"

namespace situla {
namespace {

constexpr unsigned kMaxNesting = 4;

/// "oci:DIR:a, oci:DIR:b", or the form with a place if the images have no names.
std::string choices(const Index& index, FileReference reference) {
  std::set<std::string> names;
  for (const IndexEntry& entry : index)
    if (!entry.names.empty()) names.insert(entry.names.front());
  reference.index.reset();
  reference.name.clear();
  const std::string prefix = reference.text() + ":";
  if (names.empty())
    return "it has " + std::to_string(index.size()) + " without a tag: choose by place, " + prefix + "@0";
  std::string text = "it has ";
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown++ == kMaxNamesShown) return text + ", ...";
    text += (shown == 1 ? "" : ", ") + prefix + excerpt(name);
  }
  return text;
}

bool has_name(const IndexEntry& entry, const std::string& name) {
  return std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end();
}

class OciSource final : public FileSource {
 public:
  OciSource(std::unique_ptr<ImageFiles> files, FileReference reference)
      : FileSource(std::move(files), reference.text()), reference_(std::move(reference)) {}

  Result<ResolvedImage> resolve(const Platform& platform) override {
    auto file = files().open("index.json");
    if (!file)
      return fail(std::move(file)
                      .error()
                      .with_code(ErrorCode::image_not_found)
                      .with_hint(files().open("manifest.json")
                                     ? "this looks like an image of 'skopeo copy dir:' (dir:PATH) or 'docker save' "
                                       "(docker-archive:PATH)"
                                     : "an OCI image layout has the files index.json and oci-layout; a ':' in the "
                                       "path would begin the tag"));
    TRY_ASSIGN(const std::string text, read_manifest(*file, "index.json"));
    TRY_ASSIGN(auto parsed, parse_manifest(text, "application/vnd.oci.image.index.v1+json"));
    const Index* index = std::get_if<Index>(&parsed);
    if (index == nullptr) return fail(ErrorKind::corrupt, "index.json: not an index");
    TRY_ASSIGN(Descriptor chosen, choose(*index, platform));
    for (unsigned depth = 0; depth < kMaxNesting; ++depth) {
      TRY_ASSIGN(const std::string manifest, read_manifest(chosen, file_of(chosen.digest)));
      TRY_ASSIGN(parsed, parse_manifest(manifest, chosen.media_type));
      if (Manifest* image = std::get_if<Manifest>(&parsed)) return ResolvedImage{chosen.digest, std::move(*image)};
      TRY_ASSIGN(chosen, choose_platform(std::get<Index>(parsed), platform));
    }
    return fail(ErrorKind::corrupt, "index.json: indexes inside indexes");
  }

 private:
  [[nodiscard]] std::string file_of(const Digest& digest) const override { return "blobs/sha256/" + digest.hex(); }

  /// The image that the reference names. Several entries under one name are one image for several platforms.
  Result<Descriptor> choose(const Index& index, const Platform& platform) const {
    if (index.empty())
      return fail(
          Error(ErrorKind::not_found, "index.json: there is no image in it").with_code(ErrorCode::image_not_found));
    if (reference_.index) {
      if (*reference_.index < index.size()) return index[*reference_.index].manifest;
      return fail(Error(ErrorKind::not_found, "index.json: has only " + std::to_string(index.size()) + " images")
                      .with_code(ErrorCode::image_not_found));
    }
    Index found;
    for (const IndexEntry& entry : index)
      if (reference_.name.empty() || has_name(entry, reference_.name)) found.push_back(entry);
    if (found.empty())
      return fail(Error(ErrorKind::not_found, "index.json: no image has the tag '" + printable(reference_.name) + "'")
                      .with_code(ErrorCode::image_not_found)
                      .with_hint(choices(index, reference_)));
    if (found.size() == 1) return found.front().manifest;
    const bool one_image = std::all_of(found.begin(), found.end(), [&](const IndexEntry& entry) {
      const bool same = !reference_.name.empty() || entry.names == found.front().names;
      return same && !entry.platform.architecture.empty();
    });
    if (one_image) return choose_platform(found, platform);
    return fail(Error(ErrorKind::usage, "index.json: there are several images in it")
                    .with_code(ErrorCode::image_name)
                    .with_hint(choices(found, reference_)));
  }

  FileReference reference_;
};

class DirectorySource final : public FileSource {
 public:
  DirectorySource(std::unique_ptr<ImageFiles> files, const FileReference& reference)
      : FileSource(std::move(files), reference.text()) {}

  Result<ResolvedImage> resolve(const Platform& platform) override {
    TRY(check_version());
    auto file = files().open("manifest.json");
    if (!file)
      return fail(std::move(file)
                      .error()
                      .with_code(ErrorCode::image_not_found)
                      .with_hint(files().open("index.json") ? "this looks like an OCI image layout: oci:PATH"
                                                            : "'skopeo copy ... dir:PATH' writes such a directory"));
    TRY_ASSIGN(std::string text, read_manifest(*file, "manifest.json"));
    TRY_ASSIGN(auto parsed, parse_manifest(text, "manifest.json"));
    if (const Index* index = std::get_if<Index>(&parsed)) {
      TRY_ASSIGN(const Descriptor chosen, choose_platform(*index, platform));
      TRY_ASSIGN(text, read_manifest(chosen, chosen.digest.hex() + ".manifest.json"));
      TRY_ASSIGN(parsed, parse_manifest(text, chosen.media_type));
    }
    Manifest* manifest = std::get_if<Manifest>(&parsed);
    if (manifest == nullptr) return fail(ErrorKind::corrupt, "manifest.json: an index inside an index");
    return ResolvedImage{digest_of(text), std::move(*manifest)};
  }

 private:
  [[nodiscard]] std::string file_of(const Digest& digest) const override { return digest.hex(); }

  /// A later format may name its blobs in another way. Old writers left no version.
  Result<void> check_version() {
    const auto file = files().open("version");
    if (!file) return {};
    TRY_ASSIGN(const std::string version, read_manifest(*file, "version"));
    if (version.starts_with("Directory Transport Version: 1.")) return {};
    return fail(ErrorKind::unsupported,
                "version: '" + excerpt(trim(version)) + "' is not 'Directory Transport Version: 1.x'");
  }
};

}  // namespace

std::unique_ptr<ImageSource> make_oci_source(std::unique_ptr<ImageFiles> files, FileReference reference) {
  return std::make_unique<OciSource>(std::move(files), std::move(reference));
}

std::unique_ptr<ImageSource> make_directory_source(std::unique_ptr<ImageFiles> files, const FileReference& reference) {
  return std::make_unique<DirectorySource>(std::move(files), reference);
}

}  // namespace situla
