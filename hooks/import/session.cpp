#include "hooks/import/session.hpp"

#include <algorithm>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// "sha256:0123456789ab…": enough to find it.
std::string short_digest(const Digest& digest) {
  return digest.text().substr(0, 7 + 12) + "…";
}

}  // namespace

ImportSession::ImportSession(const ImportRequest& request, Platform platform, std::unique_ptr<ImageSource> source,
                             std::function<bool()> cancelled)
    : request_(request), cancelled_(std::move(cancelled)), platform_(std::move(platform)), source_(std::move(source)) {}

Error ImportSession::explain(Error error) const {
  const ErrorKind kind = error.kind();
  error.with_context("failed to import docker image: " + source_->text());
  const bool name_may_be_wrong = kind == ErrorKind::not_found || kind == ErrorKind::denied;
  if (!name_may_be_wrong || request_.hint.empty()) return error;
  // The file that exists is the better guess of the two.
  Error better(kind, error.message());
  return std::move(better).with_hint(printable(request_.hint));
}

Result<std::unique_ptr<ImportSession>> ImportSession::open(const ImportRequest& request, Progress& progress) {
  Platform platform = Platform::host();
  if (!request.platform.empty()) {
    TRY_ASSIGN(platform, Platform::parse(request.platform));
  }
  auto source = open_source(request, progress);
  if (!source && image_kind(request.image) == ImageKind::registry) return fail(std::move(source).error());
  if (!source)
    return fail(std::move(source).error().with_context("failed to import docker image: " + printable(request.image)));
  std::unique_ptr<ImportSession> session(new ImportSession(request, std::move(platform), std::move(*source),
                                                           [&progress] { return progress.cancelled(); }));
  progress.phase("resolving " + session->source_->text());
  auto resolved = session->source_->resolve(session->platform_);
  if (!resolved) return fail(session->explain(std::move(resolved).error()));
  session->resolved_ = std::move(*resolved);
  return session;
}

uint64_t ImportSession::layer_bytes() const {
  uint64_t bytes = 0;
  for (const Descriptor& layer : resolved_.manifest.layers) bytes += layer.size;
  return bytes;
}

std::vector<Blob> ImportSession::blobs() const {
  const std::vector<Descriptor>& layers = resolved_.manifest.layers;
  std::vector<Blob> blobs;
  for (size_t i = 0; i < layers.size(); ++i)
    blobs.push_back({layers[i].digest, layers[i].size,
                     "layer " + std::to_string(i + 1) + " of " + std::to_string(layers.size()) + " " +
                         short_digest(layers[i].digest),
                     layers[i].urls, layers[i].of_content});
  return blobs;
}

Result<std::unique_ptr<LayerStream>> ImportSession::open_stream(const std::vector<Blob>& blobs, Trace* trace) {
  TRY_ASSIGN(BlobStream stream, source_->open_blobs(blobs));
  return std::make_unique<LayerStream>(blobs, std::move(stream.read), std::move(stream.stop), cancelled_, trace);
}

Result<ImageConfig> ImportSession::fetch_config() {
  auto config = source_->fetch_config(resolved_.manifest.config);
  if (!config) return fail(explain(std::move(config).error()));
  auto parsed = parse_image_config(*config);
  if (!parsed) return fail(explain(std::move(parsed).error()));
  return parsed;
}

Result<BuiltImage> ImportSession::write(int fd, const std::string& where, SquashOptions options, Progress& progress,
                                        Trace* trace) {
  {
    const TraceSpan span(trace, "fetch configuration");
    TRY_ASSIGN(config_, fetch_config());
  }
  if (!config_.architecture.empty() && config_.architecture != platform_.architecture)
    progress.note("Image architecture doesn't match the requested one: " + printable(config_.architecture) +
                  " != " + platform_.architecture);
  const uint64_t total = layer_bytes();
  const size_t count = resolved_.manifest.layers.size();
  progress.phase("importing " + std::to_string(count) + (count == 1 ? " layer, " : " layers, ") + format_size(total));
  if (options.workers == 0) options.workers = std::min(request_.settings.max_processors, 256U);
  ImageBuilder builder(fd, where, options, blobs());
  builder.report_to(progress);
  builder.trace_to(trace);
  auto built = builder.build([this, trace](const std::vector<Blob>& blobs) { return open_stream(blobs, trace); },
                             config_, uri());
  if (!built) return fail(explain(std::move(built).error()));
  return built;
}

}  // namespace situla
