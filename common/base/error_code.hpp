// Under which word does the manual explain an error? The codes of situla-errors(7), shown at the end of a message.
#pragma once

#include <cstdint>
#include <string_view>

namespace situla {

/// Stable: scripts and notes of sites name them, so that one is never renamed and never means something else. A code
/// stands for what its reader can do about it, not for the place that made it. Each has a section in
/// packaging/man/situla-errors.7.scd, which tests/unit/base_error_code_test.cpp compares with this list.
enum class ErrorCode : uint8_t {
  none,  ///< no code of its own: that of its ErrorKind is shown

  // The image and where it comes from.
  image_name,            ///< what was written is no name of an image
  image_not_found,       ///< the registry, archive or store has no such image
  image_platform,        ///< it exists for other processors only
  image_damaged,         ///< content and digest, size or format do not fit
  image_unsupported,     ///< a format or compression that is not read here
  image_too_large,       ///< larger than a limit of the site
  image_file,            ///< no squashfs image
  image_in_use,          ///< of the store: something uses it, or it is pinned
  registry_login,        ///< without, or with a wrong, login
  registry_blocked,      ///< the site's rules do not allow it
  registry_unreachable,  ///< nobody answers
  registry_certificate,  ///< its certificate is not trusted
  registry_busy,         ///< it asks to wait, or has trouble of its own
  registry_answer,       ///< it does not answer as the specification says
  credentials,           ///< a file or program with logins cannot be used
  engine,                ///< docker or podman on this machine

  // Room.
  store_full,   ///< the node's image store, or a user's share of it
  mount_limit,  ///< so many images are mounted for this user as the site allows
  disk_full,    ///< a file system or a disk quota
  memory,       ///< of the step, or of the node
  open_files,   ///< too many

  // Containers.
  container_name,       ///< what was written is no name of a container
  container_exists,     ///< already
  container_not_found,  ///< none of that name here
  container_in_use,     ///< something runs in it
  file_exists,          ///< a file that would be written is there already
  mount_syntax,         ///< of --container-mounts, --mount, fstab
  mount_source,         ///< is not there, or may not be used
  mount_failed,         ///< the kernel refuses
  workdir,              ///< no such directory in the container
  command,              ///< no such program in the container
  start_script,         ///< /etc/rc, an entrypoint or a profile of the image
  hook,                 ///< a hook failed
  namespaces,           ///< the kernel's settings allow no container

  // GPUs and other devices.
  gpu_request,      ///< a variable or option names what is not there or not given
  gpu_driver,       ///< the host's driver cannot be used
  gpu_requirement,  ///< the image asks for another driver or GPU
  cdi,              ///< a CDI specification or device name

  // Settings.
  option,            ///< of a command line
  enroot_config,     ///< enroot.conf, ENROOT_* variables, configuration scripts
  site_config,       ///< situla.toml, plugstack.conf
  environment_file,  ///< --environment

  // The node.
  kernel,        ///< lacks something
  installation,  ///< of Situla: programs, accounts, rights of directories
  slurm,         ///< its commands, its variables, or the step
  time_limit,    ///< of an import or a start
  helper,        ///< a process of Situla was killed or crashed

  // Those of ErrorKind.
  failed,
  wrong_input,
  not_found,
  exists,
  denied,
  network,
  damaged,
  no_space,
  unsupported,
  cancelled,
};
constexpr ErrorCode last_of(ErrorCode) {
  return ErrorCode::cancelled;
}

/// "registry-login"; "" for none.
std::string_view to_string(ErrorCode code);
/// ErrorCode::none for a word that is no code.
ErrorCode error_code_from_string(std::string_view name);

}  // namespace situla
