#include "hooks/containers/request.hpp"

#include <unistd.h>

#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/containers/container_identity.hpp"

namespace situla {

RootSource RootSource::of(const NamedContainer& container) {
  RootSource source;
  source.kind = container.kind == NamedContainer::Kind::layered ? Kind::layered : Kind::directory;
  source.path = container.path;
  source.held = container.directory;
  if (source.held) (void)ensure_identity(source.held->get());
  return source;
}

ContainerRequest ContainerRequest::of_this_user(ContainerSpec spec, Environment host, EnrootConfig config,
                                                LogSink& log) {
  const auto decide = [&](std::string_view name, Tristate asked) {
    const bool value = asked == Tristate::unset ? config.flag(name) : asked == Tristate::yes;
    config.set(name, value ? "yes" : "no");  // for scripts: whoever else asks looks at the request
    return value;
  };
  const auto asked = [](bool option) { return option ? Tristate::yes : Tristate::unset; };
  ContainerRequest request;
  request.remap_root = decide("ENROOT_REMAP_ROOT", spec.remap_root);
  request.writable = decide("ENROOT_ROOTFS_WRITABLE", spec.writable);
  request.isolation.pid = decide("ENROOT_UNSHARE_PID", asked(spec.unshare.pid));
  request.isolation.net = decide("ENROOT_UNSHARE_NET", asked(spec.unshare.net));
  request.isolation.ipc = decide("ENROOT_UNSHARE_IPC", asked(spec.unshare.ipc));
  request.isolation.uts = decide("ENROOT_UNSHARE_UTS", asked(spec.unshare.uts));
  request.mount_home = decide("ENROOT_MOUNT_HOME", spec.mount_home);
  // Without one of the user's it has his number in its name, which is another one where he is root.
  config.set("ENROOT_RUNTIME_PATH", config.runtime_path());
  request.uid = geteuid();
  request.gid = getegid();
  SiteConfig site = load_site_config(log);
  request.devices = std::move(site.device_settings);
  request.id_ranges = site.id_ranges;
  request.slurm_inside = spec.slurm_inside && !site.slurm_inside.empty();
  // Relative mount sources are meant from here. PWD is missing with `srun --export=NONE`, and another directory with
  // `srun --chdir`.
  host.set("PWD", current_directory());
  request.spec = std::move(spec);
  request.host = std::move(host);
  request.config = std::move(config);
  return request;
}

ContainerRequest ContainerRequest::of_start(StartOptions options, Environment host, EnrootConfig config, LogSink& log,
                                            ContainerSpec spec) {
  if (options.root) spec.remap_root = Tristate::yes;
  if (options.writable) spec.writable = Tristate::yes;
  spec.unshare = options.isolation;
  ContainerRequest request = of_this_user(std::move(spec), std::move(host), std::move(config), log);
  request.start = std::move(options);
  return request;
}

SiteConfig load_site_config(LogSink& log) {
  Result<SiteConfig> site = SiteConfig::load(SITULA_SYSCONF_DIR "/situla.toml");
  if (site) return std::move(*site);
  log.warning("ignoring " + site.error().message());
  return {};
}

}  // namespace situla
