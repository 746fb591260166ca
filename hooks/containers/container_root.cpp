#include "hooks/containers/container_root.hpp"

#include <chrono>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/sys/mount/mount_api.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/extract_tree.hpp"
#include "hooks/containers/keeper.hpp"
#include "hooks/containers/named_container.hpp"
#include "hooks/containers/running_processes.hpp"
#include "hooks/mount/image_mount.hpp"
#include "hooks/mount/overlay.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kLockTime{30};
constexpr MountFlags kRootFlags = {.no_suid = true, .no_dev = true};

Result<void> make_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, "create directory " + path);
  return {};
}

/// lower + upper -> target. Nothing of the upper layer outlives the container. Returns that layer.
Result<UniqueFd> mount_layers(const std::vector<std::string>& lower, const std::string& parent,
                              const std::string& target, const std::string& mark, LogSink& log) {
  const OverlayLayers layers{
      .lower = lower, .upper = parent + "/upper", .work = parent + "/work", .ephemeral = true, .source = mark};
  TRY(make_directory(layers.upper));
  TRY(make_directory(layers.work));
  TRY_ASSIGN(UniqueFd upper, open_file(layers.upper, O_RDONLY | O_DIRECTORY));
  TRY_ASSIGN(const UniqueFd point, open_file(target, O_PATH | O_DIRECTORY));
  TRY(mount_overlay(layers, point.get(), kRootFlags, log));
  return upper;
}

/// Makes a root in the stage; a class because request, result and log are needed by all ways.
class RootBuilder {
 public:
  RootBuilder(const ContainerRequest& request, LogSink& log)
      : request_(request), log_(log), stage_(request.stage()), mark_(step_mark(request.step)) {
    root_.path = stage_ + "/rootfs";
  }

  Result<ContainerRoot> build() {
    const RootSource& source = request_.root;
    TRY(make_directory(root_.path));
    switch (source.kind) {
      case RootSource::Kind::mounted:
        root_.kind = "kernel";
        TRY(add_layer({source.path}));
        break;
      case RootSource::Kind::layered:
        root_.kind = source.mounted.empty() ? "layers-fuse" : "layers";
        TRY(named_if_gone(from_layers({"", source.path, NamedContainer::Kind::layered, source.held}), source.path));
        break;
      case RootSource::Kind::directory:
        root_.kind = "tree";
        TRY(named_if_gone(from_directory({"", source.path, NamedContainer::Kind::tree, source.held}), source.path));
        break;
      case RootSource::Kind::image:
        TRY(from_image());
        break;
      case RootSource::Kind::empty:
        root_.kind = "empty";
        TRY(make_directory(stage_ + "/empty"));
        TRY(add_layer({stage_ + "/empty"}));
        break;
    }
    return std::move(root_);
  }

 private:
  /// It may be removed at any moment; its own name is what the user knows, and not the descriptor it is held by.
  static Result<void> named_if_gone(Result<void> made, const std::string& path) {
    if (made || made.error().errnum() != ENOENT) return made;
    return fail(Error::from_errno(ENOENT, "open the container " + path).with_code(ErrorCode::container_not_found));
  }

  /// What hooks write to a read-only container goes to memory; a writable one's changes to disk, because memory counts
  /// against the job. A command of the user's leaves nothing on disk while it runs.
  Result<void> add_layer(const std::vector<std::string>& lower) {
    if (request_.writable && request_.for_step()) {
      auto mounted = add_layer_on_disk(lower);
      if (mounted) return mounted;
      log_.warning("changes to the container are kept in memory: " + mounted.error().message());
      root_.scratch = Scratch();
    }
    TRY_ASSIGN(root_.changes, mount_layers(lower, stage_, root_.path, mark_, log_));
    name_image();
    return {};
  }

  Result<void> make_scratch() {
    const EnrootConfig& config = request_.config;
    TRY_ASSIGN(root_.scratch,
               request_.for_step()
                   ? Scratch::make(ScratchPlaceKind::data, config.data_path(), request_.step, request_.scratch_notice)
                   : Scratch::make(ScratchPlaceKind::temporary, config.temp_path(), random_name(start_prefix())));
    return {};
  }

  Result<void> add_layer_on_disk(const std::vector<std::string>& lower) {
    TRY(make_scratch());
    TRY_ASSIGN(root_.changes, mount_layers(lower, root_.scratch.held(), root_.path, mark_, log_));
    name_image();
    return {};
  }

  /// Changes to a writable directory are meant to stay; a read-only one is not touched at all.
  Result<void> from_directory(const NamedContainer& found) {
    TRY_ASSIGN(const NamedContainer container, reopen_container(found));
    mark_ = container_mark(container);
    if (!request_.writable) return add_layer({container.held()});
    TRY(lock(container.held() + "/.lock"));
    return bind(container.held());
  }

  /// A read-only one is mounted by itself, over what was changed until now; writable ones share one mount, whose
  /// keeper has the image from the first of them.
  Result<void> from_layers(const NamedContainer& found) {
    TRY_ASSIGN(const NamedContainer container, reopen_container(found));
    mark_ = container_mark(container);
    if (!request_.writable) {
      if (!request_.root.mounted.empty()) return add_layer({container.upper(), request_.root.mounted});
      TRY_ASSIGN(const UniqueFd image, open_file(container.image(), O_RDONLY));
      return serve(image.get(), {container.upper()});
    }
    TRY(lock(container.state() + "/lock"));
    TRY_ASSIGN(const UniqueFd point, open_file(root_.path, O_PATH | O_DIRECTORY));
    TRY_ASSIGN(const DetachedMount root, join_layers(container, request_, log_));
    TRY_CONTEXT("mount the container's root", root.attach(point.get()));
    return {};
  }

  Result<void> lock(const std::string& path) {
    auto lock = FileLock::acquire(path, FileLock::Kind::exclusive, kLockTime);
    if (!lock && lock.error().errnum() == EWOULDBLOCK) lock.error().with_code(ErrorCode::container_in_use);
    if (!lock) return fail(std::move(lock).error().with_context("Could not acquire rootfs lock"));
    root_.lock = std::move(*lock);
    return {};
  }

  Result<void> from_image() {
    auto built = serve_or_extract();
    if (!built && built.error().kind() == ErrorKind::corrupt)
      built.error()
          .with_code(ErrorCode::image_file)
          .with_hint("the file is damaged or no squashfs image; `situla import` and mksquashfs make them");
    return built;
  }

  /// What is wrong with the image itself would be wrong for extraction, too.
  Result<void> serve_or_extract() {
    const RootSource& source = request_.root;
    if (source.mount == MountKind::extract) return extract(source.image.get());
    auto served = serve(source.image.get());
    if (served || source.mount == MountKind::fuse || served.error().kind() == ErrorKind::corrupt) return served;
    log_.warning("extracting the image, which takes longer than mounting it: " + served.error().message());
    return extract(source.image.get());
  }

  /// above: directories that cover the image.
  Result<void> serve(int image_fd, std::vector<std::string> above = {}) {
    TRY(fuse_available());
    const std::string lower = stage_ + "/image";
    TRY(make_directory(lower));
    TRY_ASSIGN(root_.server, serve_image(image_fd, lower, request_.inside_uid(), request_.inside_gid(), log_));
    if (root_.kind.empty()) root_.kind = "fuse";
    above.push_back(lower);
    return add_layer(above);
  }

  /// The tree is this container's own, so that it needs no layer on top.
  Result<void> extract(int image_fd) {
    TRY(make_scratch());
    TRY(root_.scratch.remove_at_exit());
    const std::string tree = root_.scratch.held() + "/rootfs";
    TRY(make_directory(tree));
    TRY_ASSIGN(root_.changes, open_file(tree, O_RDONLY | O_DIRECTORY));
    const auto here = [](const std::function<Result<void>()>& body) { return body(); };
    TRY_CONTEXT("extract the image to " + root_.scratch.path(),
                extract_tree(image_fd, root_.changes.get(), {.log = &log_, .owners = request_.range.wanted}, here));
    name_image();
    root_.kind = "extracted";
    return bind(tree);
  }

  Result<void> bind(const std::string& path) {
    TRY_ASSIGN(const UniqueFd source, open_file(path, O_PATH | O_DIRECTORY));
    TRY_ASSIGN(const UniqueFd point, open_file(root_.path, O_PATH | O_DIRECTORY));
    auto bound = bind_at(point.get(), source.get(), false, kRootFlags, root_.path);
    // Mounts beneath it can only come along (mount_namespaces(7)).
    if (!bound && bound.error().errnum() == EINVAL)
      bound = bind_at(point.get(), source.get(), true, kRootFlags, root_.path);
    return bound;
  }

  /// File systems without such attributes (tmpfs before Linux 6.6) show none.
  void name_image() const {
    const std::string& name = request_.spec.image;
    if (request_.for_step() && !name.empty() && root_.changes)
      (void)fsetxattr(root_.changes.get(), kImageAttribute, name.data(), name.size(), 0);
  }

  const ContainerRequest& request_;
  LogSink& log_;
  std::string stage_;
  std::string mark_;  ///< by which `list --fancy` recognises the container
  ContainerRoot root_;
};

}  // namespace

Result<ContainerRoot> build_root(const ContainerRequest& request, LogSink& log) {
  return RootBuilder(request, log).build();
}

}  // namespace situla
