#include "hooks/bundle/start/start.hpp"

#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/import/output_file.hpp"
#include "hooks/run/enroot_config.hpp"
#include "hooks/run/launch.hpp"
#include "hooks/run/scratch.hpp"
#include "hooks/unpack/bundle_trailer.hpp"
#include "hooks/unpack/extract.hpp"

namespace situla::bundle {
namespace {

constexpr size_t kMostFiles = size_t{64} << 20U;

Result<Scratch> make_scratch(const std::string& parent) {
  TRY_ASSIGN(Scratch scratch, Scratch::make(parent, random_name(".situla-bundle-")));
  TRY(scratch.remove_at_exit());
  return scratch;
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
    if (!is_safe(file.path)) return fail(ErrorKind::corrupt, "the bundle is damaged");
    const std::string path = directory + "/" + file.path;
    TRY(make_directories(split_path(path).first, 0700));
    TRY_ASSIGN(const UniqueFd written, open_file(path, O_WRONLY | O_CREAT | O_EXCL, (file.mode & 0777U) | 0600U));
    TRY_CONTEXT("write " + path, write_all(written.get(), file.content));
  }
  return {};
}

}  // namespace

Result<Bundle> open_bundle(const std::string& path, const Environment& environment) {
  Bundle bundle{path, {}, {}, environment.get_or("SITULA_BUNDLE_TARGET", "")};
  TRY_ASSIGN(bundle.file, open_file(path, O_RDONLY));
  struct stat status {};
  if (fstat(bundle.file.get(), &status) != 0) return fail_errno(errno, "inspect " + path);
  const auto trailer = BundleTrailer::read(bundle.file.get(), static_cast<uint64_t>(status.st_size));
  if (!trailer || trailer->files_bytes > kMostFiles)
    return fail(ErrorKind::corrupt, path + ": the bundle is truncated or damaged");
  std::string packed(trailer->files_bytes, '\0');
  const ssize_t count =
      pread(bundle.file.get(), packed.data(), packed.size(), static_cast<off_t>(trailer->files_offset));
  if (count != static_cast<ssize_t>(packed.size())) return fail(ErrorKind::corrupt, path + ": the bundle is damaged");
  TRY_ASSIGN(bundle.files, BundleFiles::parse(packed));
  if (bundle.target.empty()) bundle.target = path + ".d";
  return bundle;
}

Result<void> extract_bundle(const Bundle& bundle, LogSink& log) {
  struct stat status {};
  const auto [parent, name] = split_path(bundle.target);
  const Error exists(ErrorKind::exists, "File already exists: " + bundle.target);
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

Result<int> start_bundle(Bundle bundle, const Options& options, Environment environment, LogSink& log) {
  if (!options.configuration.empty()) return fail(ErrorKind::unsupported, "--conf is not supported yet");
  TRY_ASSIGN(const EnrootConfig outer, EnrootConfig::load(environment, log));
  TRY_ASSIGN(Scratch scratch, make_scratch(outer.temp_path()));
  TRY(write_files(bundle, scratch.path()));
  environment.unset("SITULA_BUNDLE_TARGET");
  environment.set("ENROOT_SYSCONF_PATH", scratch.path() + "/system");
  environment.set("ENROOT_CONFIG_PATH", scratch.path() + "/user");
  environment.set("ENROOT_DATA_PATH", scratch.path());
  environment.set("ENROOT_RUNTIME_PATH", scratch.path() + "/run");
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(environment, log));

  StartRequest request;
  if (options.keep)
    request.root = RootSource{RootSource::Kind::directory, bundle.target, UniqueFd(), MountKind::automatic};
  else
    request.root = RootSource{RootSource::Kind::image, bundle.path, std::move(bundle.file), MountKind::automatic};
  request.spec.remap_root = options.root ? Tristate::yes : Tristate::unset;
  request.spec.writable = options.writable ? Tristate::yes : Tristate::unset;
  request.host = std::move(environment);
  request.mounts = options.mounts;
  request.environment = options.environment;
  if (!options.rc.empty()) request.rc = options.rc;
  request.command = options.command;
  return start_container(std::move(request), config, log);
}

}  // namespace situla::bundle
