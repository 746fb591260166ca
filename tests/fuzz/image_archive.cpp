#include <cstdlib>

#include "common/sys/socket.hpp"
#include "hooks/sources/file_source.hpp"
#include "tests/fuzz/tar_input.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

constexpr size_t kMostBlobs = 20;

void read_blobs(ImageSource& source, const ResolvedImage& image, size_t most) {
  std::vector<Blob> blobs;
  for (const Descriptor& layer : image.manifest.layers)
    if (blobs.size() < kMostBlobs) blobs.push_back({layer.digest, layer.size, "layer", {}, layer.of_content});
  const auto stream = source.open_blobs(blobs);
  for (size_t i = 0; stream && i < blobs.size(); ++i) {
    uint64_t size = 0;
    for (;;) {
      const auto piece = stream->read(i);
      if (!piece || piece->empty()) break;
      size += piece->size();
      // Nothing but what is in the archive.
      if (size > most || size > blobs[i].size) std::abort();
    }
  }
}

void check_source(ImageSource& source, size_t most) {
  const auto image = source.resolve(*Platform::parse("amd64"));
  if (!image) return;
  if (const auto config = source.fetch_config(image->manifest.config)) (void)parse_image_config(*config);
  read_blobs(source, *image, most);
}

}  // namespace

/// An archive that `docker save`, podman or skopeo wrote.
void situla::fuzz(std::string_view bytes) {
  const std::string tar = with_checksums(bytes);
  const auto open = [&]() -> std::unique_ptr<ImageFiles> {
    auto file = sealed_memory("archive", tar);
    if (!file) return nullptr;
    auto files = index_image_archive(std::move(*file), "archive", ImportBudget());
    return files ? std::move(*files) : nullptr;
  };
  auto files = open();
  if (!files) return;
  for (const char* name : {"manifest.json", "./index.json", "a/../../x", "version"})
    if (const auto range = files->open(name))
      if (range->offset > tar.size() || range->size > tar.size() - range->offset) std::abort();
  if (auto saved =
          make_docker_archive_source(std::move(files), *FileReference::parse("docker-archive:/a:x:1"), "archive"))
    check_source(**saved, tar.size());
  if (auto again = open())
    check_source(*make_oci_source(std::move(again), *FileReference::parse("oci:/a")), tar.size());
  if (auto again = open())
    check_source(*make_directory_source(std::move(again), *FileReference::parse("dir:/a")), tar.size());
}
