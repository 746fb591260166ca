// How is an image read that lies in files? Blobs by digest, read where they are.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/sources/image_files.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

constexpr size_t kMaxNamesShown = 20;  ///< of those that an error lists

class FileSource : public ImageSource {
 public:
  Result<std::string> fetch_config(const Descriptor& config) override;
  /// Files that are missing or of another size are found here, before anything is read.
  Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) override;
  [[nodiscard]] std::string text() const override { return text_; }
  [[nodiscard]] std::string uri(const Digest&) const override { return text_; }

 protected:
  /// text: what the user typed, printable.
  FileSource(std::unique_ptr<ImageFiles> files, std::string text) : files_(std::move(files)), text_(std::move(text)) {}

  /// The file that holds a blob.
  [[nodiscard]] virtual std::string file_of(const Digest& digest) const = 0;
  /// A small blob, whole; its size and digest are right. what: "the manifest".
  Result<std::string> read_blob(const Descriptor& descriptor, const std::string& file, uint64_t limit, const char* key,
                                const std::string& what);
  /// The same of a manifest, and of one whose digest nobody knows.
  Result<std::string> read_manifest(const Descriptor& descriptor, const std::string& file);
  Result<std::string> read_manifest(const FileRange& range, const std::string& what) const;

  [[nodiscard]] ImageFiles& files() { return *files_; }
  [[nodiscard]] const ImportBudget& budget() const { return files_->budget(); }

 private:
  Result<FileRange> open_blob(const std::string& file, uint64_t size, const std::string& what);

  std::unique_ptr<ImageFiles> files_;
  std::string text_;
};

/// OCI image-spec, image-layout.md, as skopeo, umoci and buildah write it: index.json and blobs/. The reference's name
/// is a tag.
std::unique_ptr<ImageSource> make_oci_source(std::unique_ptr<ImageFiles> files, FileReference reference);
/// containers-transports(5), "dir": manifest.json, and blobs named by their hexadecimal digest.
std::unique_ptr<ImageSource> make_directory_source(std::unique_ptr<ImageFiles> files, const FileReference& reference);
/// What `docker save` wrote: manifest.json names a configuration and layers, without digests. Layers are plain or
/// compressed tars; each is checked against the configuration's diff_id. The image's digest is the configuration's,
/// Docker's image id. An archive that is only an OCI layout is read as one. text: for messages.
Result<std::unique_ptr<ImageSource>> make_docker_archive_source(std::unique_ptr<ImageFiles> files,
                                                                FileReference reference, std::string text);

}  // namespace situla
