#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/identity.hpp"
#include "hooks/sources/engine.hpp"
#include "hooks/sources/file_source.hpp"
#include "hooks/sources/image_files.hpp"
#include "hooks/sources/open_source.hpp"
#include "hooks/squashfs/output_file.hpp"

namespace situla {
namespace {

/// The archive of one image has one entry; its name in there may be spelled in another way.
FileReference archive_reference(const EngineReference& reference) {
  FileReference archive;
  archive.kind = ImageKind::docker_archive;
  archive.path = reference.text();
  return archive;
}

class EngineSource final : public ImageSource {
 public:
  EngineSource(EngineReference reference, const ImportRequest& request, std::vector<std::unique_ptr<Engine>> engines,
               Progress& progress)
      : reference_(std::move(reference)),
        command_(reference_.kind == ImageKind::podman ? "podman" : "docker"),
        settings_(request.engine),
        budget_(request.budget),
        engines_(std::move(engines)),
        progress_(progress) {}

  Result<ResolvedImage> resolve(const Platform& platform) override {
    EngineWatch watch{[](uint64_t) {}, [this] { return progress_.cancelled(); }};
    uint64_t size = 0;
    TRY_ASSIGN(Engine* const engine, find(watch, size));
    progress_.phase("reading " + reference_.text() + " from " + engine->place());
    watch.written = [&](uint64_t done) { progress_.bytes(done, std::max(done, size)); };
    // The directory entry that file systems without nameless files need lives as long as this.
    auto spool = OutputFile::create(settings_.temp_directory + "/image.tar");
    if (!spool)
      return fail(std::move(spool)
                      .error()
                      .with_code(ErrorCode::enroot_config)
                      .with_hint("ENROOT_TEMP_PATH names another directory"));
    spool_ = std::make_unique<OutputFile>(std::move(*spool));
    if (auto saved = engine->save(reference_.exact_name(), spool_->fd(), watch); !saved) {
      const bool full = saved.error().kind() == ErrorKind::no_space;
      const bool ended = saved.error().kind() == ErrorKind::cancelled;
      return fail(std::move(saved)
                      .error()
                      .with_context("save the image to a temporary file in " + printable(settings_.temp_directory))
                      .with_code(full ? ErrorCode::disk_full : (ended ? ErrorCode::cancelled : ErrorCode::engine))
                      .with_hint(full ? "the image has " + format_size(size) +
                                            ": ENROOT_TEMP_PATH names a directory with more room"
                                      : ""));
    }
    UniqueFd file(dup(spool_->fd()));
    if (!file) return fail_errno(errno, "duplicate a descriptor");
    TRY_ASSIGN(auto files, index_image_archive(std::move(file), "the archive from " + engine->place(), budget_));
    TRY_ASSIGN(archive_,
               make_docker_archive_source(std::move(files), archive_reference(reference_), reference_.text()));
    return archive_->resolve(platform);
  }

  Result<std::string> fetch_config(const Descriptor& config) override { return archive_->fetch_config(config); }
  Result<BlobStream> open_blobs(const std::vector<Blob>& blobs) override { return archive_->open_blobs(blobs); }
  [[nodiscard]] std::string text() const override { return reference_.text(); }
  [[nodiscard]] std::string uri(const Digest&) const override { return reference_.text(); }

 private:
  /// The first engine that has the image. "There is none" of one that answers says more than the silence of others.
  Result<Engine*> find(const EngineWatch& watch, uint64_t& size) {
    std::string asked;
    std::optional<Error> problem;
    for (const auto& engine : engines_) {
      auto found = engine->find(reference_.exact_name(), watch);
      if (found && *found) {
        size = **found;
        return engine.get();
      }
      if (found) {
        asked += (asked.empty() ? "" : ", ") + engine->place();
        continue;
      }
      if (found.error().kind() == ErrorKind::cancelled) return fail(std::move(found).error());
      if (!problem || problem->kind() != ErrorKind::denied) problem = std::move(found).error();
    }
    if (!asked.empty())
      return fail(Error(ErrorKind::not_found,
                        "no such image: " + command_ + " has no " + reference_.exact_name() + " (" + asked + ")")
                      .with_code(ErrorCode::image_not_found)
                      .with_hint("'" + command_ + " images' on " + printable(host_name()) +
                                 " lists what it has; docker://" + reference_.name + " takes it from its registry"));
    return fail(unreachable(std::move(problem)));
  }

  [[nodiscard]] Error unreachable(std::optional<Error> problem) const {
    const std::string variable = reference_.kind == ImageKind::podman ? "CONTAINER_HOST" : "DOCKER_HOST";
    if (!problem)
      problem = Error(ErrorKind::not_found,
                      "there is no program " + command_ + " in PATH, and " + variable + " names no socket");
    if (problem->kind() == ErrorKind::denied)
      return std::move(*problem)
          .with_code(ErrorCode::engine)
          .with_hint(
              reference_.kind == ImageKind::podman
                  ? "the socket is another user's: start your own with 'podman system service', or install podman"
                  : "only root and the group docker may talk to docker: ask the administrator, or push the image to a "
                    "registry");
    return std::move(*problem)
        .with_code(ErrorCode::engine)
        .with_hint("is " + command_ + " installed and running on " + printable(host_name()) + "? " + variable +
                   "=unix:///PATH names another socket");
  }

  EngineReference reference_;
  std::string command_;
  EngineSettings settings_;
  const ImportBudget budget_;
  std::vector<std::unique_ptr<Engine>> engines_;
  Progress& progress_;
  std::unique_ptr<OutputFile> spool_;
  std::unique_ptr<ImageSource> archive_;
};

}  // namespace

Result<std::unique_ptr<ImageSource>> open_engine_source(const ImportRequest& request, Progress& progress) {
  TRY_ASSIGN(EngineReference reference, EngineReference::parse(request.image));
  std::vector<std::unique_ptr<Engine>> engines;
  for (const std::string& socket : request.engine.sockets) {
    TRY_ASSIGN(auto engine, make_engine_api(reference.kind, socket));
    engines.push_back(std::move(engine));
  }
  if (!request.engine.program.empty()) engines.push_back(make_engine_program(reference.kind, request.engine));
  return std::make_unique<EngineSource>(std::move(reference), request, std::move(engines), progress);
}

}  // namespace situla
