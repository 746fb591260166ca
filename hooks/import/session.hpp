// What do all ways of importing share? A source's answer to a request, and the pass over its layers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "hooks/import/image_builder.hpp"
#include "hooks/import/layer_cache.hpp"
#include "hooks/progress/progress.hpp"
#include "hooks/request/request.hpp"
#include "hooks/sources/image_source.hpp"

namespace situla {

/// One request, resolved: the source has let this user in and named a manifest.
class ImportSession {
 public:
  /// Errors are complete: "failed to import docker image: registry.test/x:1: ...", with the request's hint where it
  /// fits. request and progress must outlive the session.
  static Result<std::unique_ptr<ImportSession>> open(const ImportRequest& request, Progress& progress);

  [[nodiscard]] const ResolvedImage& resolved() const { return resolved_; }
  [[nodiscard]] const Digest& digest() const { return resolved_.digest; }
  /// "docker://registry/repository:tag@sha256:..."
  [[nodiscard]] std::string uri() const { return source_->uri(resolved_.digest); }
  /// The manifest's platform, from the configuration; only after write().
  [[nodiscard]] const std::string& architecture() const { return config_.architecture; }
  [[nodiscard]] uint64_t layer_bytes() const;
  /// The image configuration.
  Result<ImageConfig> fetch_config();
  /// Fetches what the cache has not, and writes the squashfs file into fd (not synced). `where` names it in errors.
  /// cache: of this user's imports only; null: every layer is fetched.
  Result<BuiltImage> write(int fd, const std::string& where, const SquashOptions& options, Progress& progress,
                           LayerCache* cache, Trace* trace = nullptr);
  /// After write(): the layers are in the file `fd`, which the cache will know by `name`. What cannot be kept is not.
  void remember(LayerCache& cache, int fd, const std::string& name, LogSink& log) const;
  /// Puts "failed to import docker image: REFERENCE" in front of an error, and the request's hint behind it.
  [[nodiscard]] Error explain(Error error) const;

 private:
  ImportSession(const ImportRequest& request, Platform platform, std::unique_ptr<ImageSource> source,
                std::function<bool()> cancelled);
  [[nodiscard]] std::vector<Blob> blobs() const;
  static std::vector<std::optional<KnownLayer>> known_layers(const std::vector<Blob>& blobs, LayerCache* cache);
  Result<BuiltImage> build(int fd, const std::string& where, const SquashOptions& options, Progress& progress,
                           std::vector<std::optional<KnownLayer>> known, Trace* trace);
  Result<std::unique_ptr<LayerStream>> open_stream(const std::vector<Blob>& blobs, Trace* trace);

  const ImportRequest& request_;
  std::function<bool()> cancelled_;
  Platform platform_;
  std::unique_ptr<ImageSource> source_;
  ResolvedImage resolved_;
  ImageConfig config_;
  std::unique_ptr<ImportMeter> meter_;  ///< of the builder
  std::unique_ptr<ImageBuilder> builder_;
};

}  // namespace situla
