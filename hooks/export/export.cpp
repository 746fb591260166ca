#include "hooks/export/export.hpp"

#include <algorithm>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "hooks/containers/own_ids.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/containers/user_range.hpp"
#include "hooks/export/export_content.hpp"
#include "hooks/export/export_tree.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/output_file.hpp"
#include "hooks/squashfs/writer.hpp"
#include "hooks/unpack/read_image.hpp"

namespace situla {
namespace {

/// One export, from descriptors to a complete file without a name.
class Export {
 public:
  Export(const ExportSource& source, const ExportOptions& options, Progress& progress, LogSink& log)
      : source_(source), options_(options), progress_(progress), log_(log) {}

  Result<ExportedImage> write(int fd) {
    TRY(choose_options());
    TRY_ASSIGN(const auto writer, SquashfsWriter::create(fd, options_.path, squash_));
    const NamespaceIds ids = NamespaceIds::own();
    ExportTree tree(*writer, ids, log_);
    progress_.phase("reading " + source_.name);
    std::optional<ImageAccess> image;
    if (source_.image) {
      TRY_ASSIGN(image, ImageAccess::open(source_.image.get()));
      TRY(tree.add_image(*image, donor_ ? ExportTree::Content::referred : ExportTree::Content::compressed));
    }
    TRY_ASSIGN(UniqueFd top, duplicate_fd(source_.directory.get(), source_.name));
    const RootDir root = RootDir::from_fd(std::move(top));
    TRY(tree.add_directory(root, source_.image ? ExportTree::Directory::upper_layer : ExportTree::Directory::tree));
    tree.finish();

    ExportContent content(tree, *writer, progress_);
    ExportedImage exported;
    if (donor_) {
      progress_.phase("keeping what did not change");
      TRY_ASSIGN(exported.kept_bytes, content.keep(*donor_));
    } else if (image) {
      progress_.phase("compressing the image");
      TRY(content.compress_image(*image));
    }
    progress_.phase(source_.image ? "compressing what changed" : "compressing");
    TRY(content.compress_directory(root));
    exported.compressed_bytes = content.compressed_bytes();
    TRY_ASSIGN(exported.image_bytes, writer->finish(tree.names(), nullptr, tree.owners()));
    return exported;
  }

 private:
  /// Without the user's word everything is done to keep the image's blocks. With it they are kept if they fit.
  Result<void> choose_options() {
    const bool asked = !trim(options_.squash_options).empty();
    TRY_ASSIGN(squash_, options_to_write(options_.squash_options, options_.all_time, log_));
    if (options_.workers != 0 && squash_.workers == 0) squash_.workers = options_.workers;
    if (source_.image) TRY(choose_donor(asked));
    return {};
  }

  Result<void> choose_donor(bool asked) {
    TRY_ASSIGN(UniqueFd image, duplicate_fd(source_.image.get(), "the image of " + source_.name));
    auto opened = SquashfsDonor::open(std::move(image), "the image of " + source_.name);
    if (opened && !asked)
      if (const auto fitting = (*opened)->fitting(squash_)) squash_ = *fitting;
    if (opened && (*opened)->fits(squash_)) {
      donor_ = std::move(*opened);
      return {};
    }
    log_.info(asked ? "compressing everything again: ENROOT_SQUASH_OPTIONS asks for another compressor or block size "
                      "than the image of " +
                          source_.name + " has"
                    : "compressing everything again: the image of " + source_.name +
                          " has a compressor that cannot be written here");
    return {};
  }

  const ExportSource& source_;
  const ExportOptions& options_;
  Progress& progress_;
  LogSink& log_;
  SquashOptions squash_;
  std::unique_ptr<SquashfsDonor> donor_;
};

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// Whether a container's image names owners that its programs would see: where the site gives the user a range. Without
/// one all files are his to them.
bool shows_owners(const NamedContainer& container, LogSink& log) {
  if (container.kind != NamedContainer::Kind::layered) return false;
  const auto image = open_file(container.image(), O_RDONLY);
  const auto info = image ? read_image_info(image->get()) : fail(image.error());
  return info && info->names_owners && find_own_range(load_site_config(log).id_ranges);
}

Result<void> become_root_of_range(const std::optional<IdRange>& exactly) {
  TRY_ASSIGN(RangeHelpers helpers, RangeHelpers::begin(true, exactly));
  TRY(unshare_namespaces(kUserNs));
  return helpers.map();
}

}  // namespace

Result<ExportSource> ExportSource::open(const NamedContainer& container) {
  ExportSource source;
  source.name = container.name;
  const bool layered = container.kind == NamedContainer::Kind::layered;
  TRY_ASSIGN(source.directory, open_file(layered ? container.upper() : container.held(), O_RDONLY | O_DIRECTORY));
  if (layered) {
    TRY_ASSIGN(source.image, open_file(container.image(), O_RDONLY));
  }
  return source;
}

ExportOptions ExportOptions::of(const EnrootConfig& config) {
  constexpr uint64_t kMostWorkers = 256;
  ExportOptions options;
  options.squash_options = config.get("ENROOT_SQUASH_OPTIONS");
  const uint64_t workers = parse_unsigned(config.get("ENROOT_MAX_PROCESSORS")).value_or(0);
  options.workers = static_cast<uint32_t>(std::min(workers, kMostWorkers));
  return options;
}

Result<void> become_root_of_own_files() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (uid == 0) return {};
  TRY(unshare_namespaces(kUserNs));
  return write_own_id_maps(0, uid, 0, gid);
}

Result<void> become_root_of(const NamedContainer& container, LogSink& log) {
  TRY_ASSIGN(const UniqueFd directory, open_file(container.held(), O_PATH | O_DIRECTORY));
  TRY_ASSIGN(const ContainerRange kept, range_of_container(directory.get()));
  if (kept.range) return become_root_of_range(kept.range);
  const bool owners = kept.undecided && geteuid() != 0 && shows_owners(container, log);
  // Tried apart: a user namespace whose maps are refused is left by nobody.
  const auto possible = owners ? in_own_range([] { return Result<void>(); }) : fail(ErrorKind::unsupported, "");
  if (possible) return become_root_of_range(std::nullopt);
  if (owners)
    log.warning("all files become root's, though the container's image names other owners (" +
                possible.error().message() + "); a step with --container-remap-root and --container-save keeps them");
  if (const auto root = become_root_of_own_files(); !root)
    log.debug("exporting with the rights of an ordinary user: " + root.error().message());
  return {};
}

Result<ExportedImage> export_container(const ExportSource& source, const ExportOptions& options, Progress& progress,
                                       LogSink& log) {
  if (!options.replace && exists(options.path))
    return fail(Error(ErrorKind::exists, "File already exists: " + options.path)
                    .with_code(ErrorCode::file_exists)
                    .with_hint("--force replaces it"));
  if (is_directory(options.path))
    return fail(Error::from_errno(EISDIR, "write " + options.path).with_code(ErrorCode::file_exists));
  TRY_ASSIGN(OutputFile output, OutputFile::create(options.path));
  TRY_ASSIGN(const ExportedImage image, Export(source, options, progress, log).write(output.fd()));
  progress.phase("syncing " + options.path);
  const unsigned mode = less_umask(0666);
  TRY(options.replace ? output.publish_over(mode) : output.publish(mode));
  progress.finish("exported container " + source.name + " to " + options.path + ", " + format_size(image.image_bytes));
  return image;
}

}  // namespace situla
