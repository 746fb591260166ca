#include "hooks/bundle/start/start.hpp"

#include <array>
#include <climits>
#include <cstdio>
#include <ctime>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/containers/scratch.hpp"
#include "hooks/run/launch.hpp"
#include "hooks/run/mounted_images.hpp"
#include "hooks/scripts/config_script.hpp"
#include "hooks/squashfs/output_file.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/extract.hpp"

namespace situla::bundle {
namespace {

Result<Scratch> make_scratch(const std::string& parent) {
  TRY_ASSIGN(Scratch scratch, Scratch::make(ScratchPlaceKind::temporary, parent, random_name(".situla-bundle-")));
  TRY(scratch.remove_at_exit());
  return scratch;
}

/// What programs that were killed left: their files before they moved away, of this user, not running, and not just
/// being written; their directories before somebody waited for their end, which are empty, while those in use are not.
void remove_stale(const std::string& directory) {
  constexpr time_t kSettled = 60;
  const auto names = list_directory(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    struct stat status {};
    const std::string path = directory + "/" + name;
    const bool is_file = name.starts_with(".situla-bundle."), is_scratch = name.starts_with(".situla-bundle-");
    if ((!is_file && !is_scratch) || lstat(path.c_str(), &status) != 0) continue;
    if (status.st_uid != geteuid() || status.st_mtime > std::time(nullptr) - kSettled) continue;
    if (is_scratch) (void)rmdir(path.c_str());
    if (!is_file || !S_ISREG(status.st_mode)) continue;
    const UniqueFd idle(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));  // ETXTBSY for one that runs
    if (idle) (void)unlink(path.c_str());
  }
}

Error damaged(std::string what) {
  return Error(ErrorKind::corrupt, std::move(what)).with_code(ErrorCode::image_damaged);
}

/// "system/mounts.d/x" and the like; nothing else is ever made of a bundle's files.
bool is_safe(const std::string& path) {
  for (const std::string_view part : split(path, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

Result<void> write_files(const Bundle& bundle, const std::string& directory) {
  for (const char* name : {"/system", "/user", "/run"}) TRY(make_directories(directory + name, 0700));
  for (const BundleFile& file : bundle.files.files) {
    if (!is_safe(file.path)) return fail(damaged("the bundle is damaged"));
    const std::string path = directory + "/" + file.path;
    TRY(make_directories(split_path(path).first, 0700));
    TRY_ASSIGN(const UniqueFd written, open_file(path, O_WRONLY | O_CREAT | O_EXCL, (file.mode & 0777U) | 0600U));
    TRY_CONTEXT("write " + path, write_all(written.get(), file.content));
  }
  return {};
}

}  // namespace

Result<Scratch> make_home() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) return fail_errno(errno, "find this program");
  const auto [parent, name] = split_path(path.data());
  remove_stale(parent);
  auto home = make_scratch(parent);
  if (!home) {
    (void)unlink(path.data());
    return home;
  }
  // Where files of Situla's are looked for is beside the program: in no directory that others can write to.
  const std::string place = home->path() + "/start";
  if (rename(path.data(), place.c_str()) != 0) return fail_errno(errno, "rename " + std::string(path.data()));
  return home;
}

Result<Bundle> open_bundle(const std::string& path, const Environment& environment) {
  Bundle bundle{path, {}, {}, environment.get_or("SITULA_BUNDLE_TARGET", "")};
  TRY_ASSIGN(bundle.file, open_file(path, O_RDONLY));
  struct stat status {};
  if (fstat(bundle.file.get(), &status) != 0) return fail_errno(errno, "inspect " + path);
  const auto trailer = BundleTrailer::read(bundle.file.get(), static_cast<uint64_t>(status.st_size));
  if (!trailer || trailer->files_bytes > kBundleFiles.most_bytes)
    return fail(damaged(path + ": the bundle is truncated or damaged"));
  std::string packed(trailer->files_bytes, '\0');
  const ssize_t count =
      pread(bundle.file.get(), packed.data(), packed.size(), static_cast<off_t>(trailer->files_offset));
  if (count != static_cast<ssize_t>(packed.size())) return fail(damaged(path + ": the bundle is damaged"));
  auto files = from_wire<BundleFiles>(packed, kBundleFiles);
  if (!files) return fail(damaged("the bundle is damaged"));
  bundle.files = std::move(*files);
  if (bundle.target.empty()) bundle.target = path + ".d";
  while (bundle.target.size() > 1 && bundle.target.ends_with('/')) bundle.target.pop_back();
  return bundle;
}

Result<void> extract_bundle(const Bundle& bundle, LogSink& log) {
  struct stat status {};
  const auto [parent, name] = split_path(bundle.target);
  const Error exists =
      Error(ErrorKind::exists, "File already exists: " + bundle.target).with_code(ErrorCode::file_exists);
  if (lstat(bundle.target.c_str(), &status) == 0) return fail(exists);
  TRY_ASSIGN(const Scratch scratch, make_scratch(parent));
  const std::string tree = scratch.path() + "/rootfs";
  TRY(make_directories(tree, 0700));
  TRY_ASSIGN(const UniqueFd directory, open_file(tree, O_RDONLY | O_DIRECTORY));
  log.info("Extracting squashfs filesystem...");
  TRY_CONTEXT("extract to " + bundle.target, extract_image(bundle.file.get(), directory.get(), {&log}));
  if (renameat2(AT_FDCWD, tree.c_str(), AT_FDCWD, bundle.target.c_str(), RENAME_NOREPLACE) == 0) return {};
  if (errno == EEXIST) return fail(exists);
  // A file system without that flag; a directory is only ever renamed onto an empty one.
  if (errno == EINVAL && rename(tree.c_str(), bundle.target.c_str()) == 0) return {};
  return fail_errno(errno, "name " + bundle.target);
}

Result<int> start_bundle(Bundle bundle, const Scratch& home, const Options& options, Environment environment,
                         LogSink& log) {
  TRY(write_files(bundle, home.path()));
  environment.unset("SITULA_BUNDLE_TARGET");
  environment.set("ENROOT_SYSCONF_PATH", home.path() + "/system");
  environment.set("ENROOT_CONFIG_PATH", home.path() + "/user");
  environment.set("ENROOT_DATA_PATH", home.path());
  environment.set("ENROOT_RUNTIME_PATH", home.path() + "/run");
  TRY_ASSIGN(const EnrootConfig loaded, EnrootConfig::load(environment, log));
  TRY(loaded.check_flags(log));
  TRY_ASSIGN(EnrootConfig config, with_directives(loaded, options.start.configuration, log));

  ContainerRequest request = ContainerRequest::of_start(options.start, std::move(environment), std::move(config), log);
  request.root.kind = options.keep ? RootSource::Kind::directory : RootSource::Kind::image;
  request.root.path = options.keep ? bundle.target : bundle.path;
  if (!options.keep) request.root.image = std::move(bundle.file);
  request.command = options.command;
  TRY_ASSIGN(const auto images, wanted_images(request.config, request.host, {}, request.start.mounts));
  for (const WantedImage& image : images) {
    constexpr const char* kWhy = "a bundle fetches nothing";
    if (!image.optional())
      return fail(Error(ErrorKind::unsupported, "mount " + printable(image.reference) + ": " + kWhy)
                      .with_code(ErrorCode::mount_source)
                      .with_hint("import it into a file once, and mount that: FILE:/DST:sqsh"));
    image.say_missing(kWhy, log);
    request.mounted_images.emplace(image.reference, ImagePlace());
  }
  return start_container(std::move(request), log);
}

}  // namespace situla::bundle
