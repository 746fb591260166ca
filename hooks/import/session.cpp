#include "hooks/import/session.hpp"

#include <algorithm>

#include <unistd.h>

#include "common/base/text.hpp"
#include "hooks/sources/open_source.hpp"

namespace situla {
namespace {

/// "sha256:0123456789ab…": enough to find it.
std::string short_digest(const Digest& digest) {
  return digest.text().substr(0, 7 + 12) + "…";
}

std::string counted_layers(size_t count) {
  return std::to_string(count) + (count == 1 ? " layer" : " layers");
}

/// "importing 7 layers, 812 MiB", "importing 2 of 7 layers, 12 MiB; 800 MiB are here already".
std::string what_is_imported(const std::vector<Blob>& blobs, const std::vector<std::optional<KnownLayer>>& known) {
  uint64_t fetched = 0, here = 0;
  size_t count = 0;
  for (size_t i = 0; i < blobs.size(); ++i) {
    (known[i] ? here : fetched) += blobs[i].size;
    if (!known[i]) ++count;
  }
  if (count == blobs.size()) return "importing " + counted_layers(count) + ", " + format_size(fetched);
  return "importing " + std::to_string(count) + " of " + counted_layers(blobs.size()) + ", " + format_size(fetched) +
         "; " + format_size(here) + " are here already";
}

}  // namespace

ImportSession::ImportSession(const ImportRequest& request, Platform platform, std::unique_ptr<ImageSource> source,
                             std::function<bool()> cancelled)
    : request_(request), cancelled_(std::move(cancelled)), platform_(std::move(platform)), source_(std::move(source)) {}

Error ImportSession::explain(Error error) const {
  const ErrorKind kind = error.kind();
  error.with_context("failed to import docker image: " + request_.image_in_words());
  // What has no code of its own by now was found in the image.
  if (kind == ErrorKind::corrupt) error.with_code(ErrorCode::image_damaged);
  if (kind == ErrorKind::unsupported && error.errnum() == 0) error.with_code(ErrorCode::image_unsupported);
  const bool name_may_be_wrong =
      kind == ErrorKind::not_found || kind == ErrorKind::denied || kind == ErrorKind::unreachable;
  if (!name_may_be_wrong || request_.hint.empty()) return error;
  // The file that exists is the better guess of the two.
  SentError better = SentError::of(error);
  better.hint = printable(request_.hint);
  return better.error();
}

Result<std::unique_ptr<ImportSession>> ImportSession::open(const ImportRequest& request, Progress& progress) {
  Platform platform = Platform::host();
  if (!request.platform.empty()) {
    TRY_ASSIGN(platform, Platform::parse(request.platform));
  }
  auto source = open_source(request, progress);
  if (!source && image_kind(request.image) == ImageKind::registry) return fail(std::move(source).error());
  if (!source)
    return fail(std::move(source).error().with_context("failed to import docker image: " + request.image_in_words()));
  std::unique_ptr<ImportSession> session(new ImportSession(request, std::move(platform), std::move(*source),
                                                           [&progress] { return progress.cancelled(); }));
  progress.phase("resolving " + session->source_->text());
  auto resolved = session->source_->resolve(session->platform_);
  if (!resolved) return fail(session->explain(std::move(resolved).error()));
  if (const size_t layers = resolved->manifest.layers.size(); layers > request.budget.layers)
    return fail(session->explain(
        over_limit("the image has " + counted_layers(layers), std::to_string(request.budget.layers), "layers")));
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
  auto layers = std::make_unique<LayerStream>(blobs, std::move(stream.read), std::move(stream.stop), cancelled_, trace,
                                              meter_.get());
  layers->explain_waits(std::move(stream.waits_for));
  return layers;
}

Result<ImageConfig> ImportSession::fetch_config() {
  auto config = source_->fetch_config(resolved_.manifest.config);
  if (!config) return fail(explain(std::move(config).error()));
  auto parsed = parse_image_config(*config);
  if (!parsed) return fail(explain(std::move(parsed).error()));
  return parsed;
}

std::vector<std::optional<KnownLayer>> ImportSession::known_layers(const std::vector<Blob>& blobs, LayerCache* cache) {
  std::vector<std::optional<KnownLayer>> known(blobs.size());
  if (cache == nullptr) return known;
  size_t index_bytes = 0;
  for (size_t i = 0; i < blobs.size(); ++i) {
    known[i] = cache->find(blobs[i].digest);
    if (known[i]) index_bytes += known[i]->index.size();
    // All of them are in memory until the image is built.
    if (index_bytes > LayerIndex::kMostInMemory) known[i].reset();
  }
  return known;
}

Result<BuiltImage> ImportSession::build(int fd, const std::string& where, const SquashOptions& options,
                                        Progress& progress, std::vector<std::optional<KnownLayer>> known,
                                        Trace* trace) {
  builder_.reset();
  meter_ = std::make_unique<ImportMeter>(request_.budget);
  builder_ = std::make_unique<ImageBuilder>(fd, where, options, blobs(), *meter_);
  builder_->reuse(std::move(known));
  builder_->report_to(progress);
  builder_->trace_to(trace);
  return builder_->build([this, trace](const std::vector<Blob>& wanted) { return open_stream(wanted, trace); }, config_,
                         uri());
}

Result<BuiltImage> ImportSession::write(int fd, const std::string& where, const SquashOptions& wanted,
                                        Progress& progress, LayerCache* cache, Trace* trace) {
  {
    const TraceSpan span(trace, "fetch configuration");
    TRY_ASSIGN(config_, fetch_config());
  }
  if (!config_.architecture.empty() && config_.architecture != platform_.architecture)
    progress.note("Image architecture doesn't match the requested one: " + excerpt(config_.architecture) +
                  " != " + platform_.architecture);
  else if (const Platform image{config_.architecture, config_.variant, config_.os};
           needs_newer_processor(image, platform_))
    progress.note("The image is for " + excerpt(config_.architecture + "/" + config_.variant) + ", which not every " +
                  platform_.architecture + " processor can run");
  if (const std::string& type = resolved_.manifest.config.media_type;
      !type.empty() && type != "application/vnd.oci.image.config.v1+json" &&
      type != "application/vnd.docker.container.image.v1+json" &&
      // What old releases of Docker and of its registry wrote for images.
      type != "application/octet-stream" && type != "application/json" && type != "text/html")
    progress.note("This may be no image of a container: its configuration is " + excerpt(type));
  const std::vector<Blob> blobs = this->blobs();
  auto known = known_layers(blobs, cache);
  const bool reuses = std::any_of(known.begin(), known.end(), [](const auto& layer) { return layer.has_value(); });
  progress.phase(what_is_imported(blobs, known));
  SquashOptions options = wanted;
  if (options.workers == 0) options.workers = std::min(request_.settings.max_processors, 256U);
  auto built = build(fd, where, options, progress, std::move(known), trace);
  const auto may_do_without = [&] {
    const ErrorKind kind = built.error().kind();
    // Indexes count as the image's own metadata: what is too much with them need not be without.
    if (reuses && kind == ErrorKind::unsupported) return true;
    return builder_->reuse_failed() && kind != ErrorKind::no_space && kind != ErrorKind::cancelled;
  };
  if (!built && may_do_without()) {
    builder_.reset();  // it still writes what its threads hold
    if (ftruncate(fd, 0) != 0) return fail(explain(Error::from_errno(errno, "empty " + where)));
    progress.note(built.error().message() + ": fetching every layer instead");
    built = build(fd, where, options, progress, {}, trace);
  }
  if (!built) return fail(explain(std::move(built).error()));
  return built;
}

void ImportSession::remember(LayerCache& cache, int fd, const std::string& name, LogSink& log) const {
  const auto kept = [&]() -> Result<void> {
    LayerIndexHead head;
    TRY_ASSIGN(head.seen, FileIdentity::of(fd));
    TRY_ASSIGN(head.key, new_seal_key());
    FileSealer sealer(head.key, fd);
    head.donor = name;
    const std::vector<Descriptor>& layers = resolved_.manifest.layers;
    for (size_t i = 0; i < layers.size(); ++i) {
      head.layer = layers[i].digest;
      head.stored_bytes = builder_->stored_bytes(i);
      TRY(cache.put(head, [&](LayerIndexWriter& index) { return builder_->describe_layer(i, sealer, index); }));
    }
    return {};
  }();
  if (!kept) log.debug("the layers are not kept for other images: " + kept.error().message());
}

}  // namespace situla
