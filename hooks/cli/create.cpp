// create: a squashfs file becomes a container, a directory under ENROOT_DATA_PATH.
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/unpack/extract.hpp"

namespace situla::cli {
namespace {

/// Directories that are being filled have this prefix and a lock that their process holds; list does not show them.
constexpr std::string_view kUnfinished = ".situla-create-";

struct Options {
  std::string name;
  bool force = false;
  std::string image;
};

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

std::string default_name(const std::string& image) {
  std::string name = std::filesystem::path(image).filename().string();
  for (const std::string_view suffix : {".sqsh", ".squashfs"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

Result<FileLock> lock_directory(const std::string& path) {
  TRY_ASSIGN(UniqueFd directory, open_file(path, O_RDONLY | O_DIRECTORY));
  return FileLock::acquire(std::move(directory), FileLock::Kind::exclusive, std::chrono::milliseconds(0), path);
}

/// A directory younger than this may be about to be locked by its maker.
constexpr std::chrono::minutes kSettled{1};

/// What a create that was killed left behind: an unfinished directory that nobody locks.
void remove_abandoned(const std::string& data_path, LogSink& log) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(data_path, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(kUnfinished)) continue;
    std::error_code gone;
    if (it->last_write_time(gone) > std::filesystem::file_time_type::clock::now() - kSettled || gone) continue;
    const std::string path = it->path().string();
    const auto lock = lock_directory(path);
    if (!lock) continue;
    if (const auto removed = remove_tree(path); !removed) log.warning(removed.error().message());
  }
}

/// Moves the finished directory to its name; with replace, what was there is moved away first and deleted after.
Result<void> publish(const std::string& finished, const std::string& path, bool replace) {
  const std::string old = finished + ".old";
  const bool had = replace && exists(path);
  if (had && rename(path.c_str(), old.c_str()) != 0) return fail_errno(errno, "rename " + path);
  if (rename(finished.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    if (had) (void)rename(old.c_str(), path.c_str());
    if (reason == ENOTEMPTY || reason == EEXIST) return fail(already_exists(path));
    return fail_errno(reason, "rename " + finished + " to " + path);
  }
  return had ? remove_tree(old) : Result<void>{};
}

bool replaces(const Context& context, bool force) {
  return force || context.config.flag("ENROOT_FORCE_OVERRIDE");
}

Result<int> create(const Context& context, const Options& options) {
  const std::string name = options.name.empty() ? default_name(options.image) : options.name;
  const Result<UniqueFd> image = open_file(options.image, O_RDONLY);
  if (!image && image.error().kind() == ErrorKind::not_found) return fail(no_such_file(options.image));
  if (!image) return fail(image.error());
  TRY_ASSIGN(const std::string path, new_container(context, name, options.force));
  TRY(fill_container(context, path, options.force, image->get(), options.image));
  return 0;
}

}  // namespace

Result<std::string> new_container(const Context& context, std::string_view name, bool force) {
  TRY_ASSIGN(std::string path, container_path(context.config, name));
  if (exists(path) && !replaces(context, force)) return fail(already_exists(path));
  return path;
}

Result<void> fill_container(const Context& context, const std::string& path, bool force, int image,
                            const std::string& image_name) {
  const std::string data_path = context.config.data_path();
  TRY(make_directories(data_path, 0700));
  remove_abandoned(data_path, context.log);
  const std::string unfinished = data_path + "/" + random_name(kUnfinished);
  if (mkdir(unfinished.c_str(), 0700) != 0) return fail_errno(errno, "mkdir " + unfinished);
  const ScopeExit clean([&] { (void)remove_tree(unfinished); });
  TRY_ASSIGN(const FileLock lock, lock_directory(unfinished));
  context.log.info("Extracting squashfs filesystem...");
  TRY_CONTEXT("extracting " + image_name,
              extract_image(image, lock.fd(), ExtractOptions{.log = &context.log, .keep_set_id = false}));
  return publish(unfinished, path, replaces(context, force));
}

void add_create(CLI::App& app, Actions& actions) {
  CLI::App* command = app.add_subcommand("create", "Extract a squashfs file to a container");
  auto options = std::make_shared<Options>();
  command->add_option("-n,--name", options->name, "Name of the container (default: the file's, without .sqsh)");
  command->add_flag("-f,--force", options->force, "Replace an existing container");
  command->add_option("IMAGE", options->image, "Squashfs file")->required();
  actions["create"] = [options](const Context& context) { return create(context, *options); };
}

}  // namespace situla::cli
