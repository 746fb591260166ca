#include "plugin/option_table.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/resolve_rule.hpp"

namespace situla {
namespace {

constexpr std::array<std::pair<std::string_view, NameFlag>, 5> kNameFlags = {{{"", NameFlag::automatic},
                                                                              {"auto", NameFlag::automatic},
                                                                              {"create", NameFlag::create},
                                                                              {"exec", NameFlag::exec},
                                                                              {"no_exec", NameFlag::no_exec}}};
constexpr std::array<std::pair<std::string_view, bool Isolation::*>, 4> kNamespaces = {
    {{"net", &Isolation::net}, {"ipc", &Isolation::ipc}, {"uts", &Isolation::uts}, {"pid", &Isolation::pid}}};

/// NAME[:FLAG]. The name becomes a directory "pyxis_<jobid>_NAME" on the node, of at most 255 bytes.
Result<void> set_name(std::string_view value, ContainerSpec& spec) {
  constexpr size_t kLongest = 230;
  constexpr std::string_view kRefused = "/:\"'\\";
  const size_t colon = value.find(':');
  const std::string name(value.substr(0, colon));
  const std::string_view flag = colon == std::string_view::npos ? "" : value.substr(colon + 1);
  const auto* row = std::find_if(kNameFlags.begin(), kNameFlags.end(), [&](const auto& r) { return r.first == flag; });
  if (row == kNameFlags.end())
    return fail(ErrorKind::usage,
                R"(flag must be "auto", "create", "exec" or "no_exec", not ")" + printable(flag) + '"');
  if (name.empty()) return fail(Error(ErrorKind::usage, "the name is empty").with_code(ErrorCode::container_name));
  if (name.size() > kLongest)
    return fail(Error(ErrorKind::usage, "the name is longer than " + std::to_string(kLongest) + " characters")
                    .with_code(ErrorCode::container_name));
  for (const char c : name)
    if (c <= ' ' || c > '~' || kRefused.find(c) != std::string_view::npos)
      return fail(Error(ErrorKind::usage, "'" + printable(name) + "' cannot be the name of a container")
                      .with_code(ErrorCode::container_name)
                      .with_hint("it becomes a directory's name: letters, digits and . _ - + @ = are fine"));
  spec.name = name;
  spec.name_flag = row->second;
  return {};
}

Result<void> set_namespaces(std::string_view value, ContainerSpec& spec) {
  for (const std::string_view name : split_nonempty(value, ',')) {
    const auto* row =
        std::find_if(kNamespaces.begin(), kNamespaces.end(), [&](const auto& r) { return r.first == name; });
    if (row == kNamespaces.end())
      return fail(Error(ErrorKind::usage, "unknown namespace: " + printable(name))
                      .with_code(ErrorCode::option)
                      .with_hint("net, ipc, uts and pid"));
    spec.unshare.*(row->second) = true;
  }
  return {};
}

Result<void> set_image(std::string_view value, ContainerSpec& spec) {
  if (auto checked = check_image(value); !checked)
    return fail(std::move(checked)
                    .error()
                    .with_code(ErrorCode::image_name)
                    .with_hint("if it is a file, write its path with a / or ./ in front"));
  // Of an srun in a container the specification is that one's at first, and its digest is of that one's image.
  if (spec.image != value) spec.pinned.clear();
  spec.image = value;
  return {};
}

Result<void> set_mounts(std::string_view value, ContainerSpec& spec) {
  TRY_ASSIGN(spec.mounts, parse_mount_options(value));
  return {};
}

Result<void> set_workdir(std::string_view value, ContainerSpec& spec) {
  spec.workdir = value;
  return {};
}

Result<void> set_save(std::string_view value, ContainerSpec& spec) {
  if (value.ends_with('/')) return fail(ErrorKind::usage, printable(value) + " is not the name of a file");
  spec.save = value;
  return {};
}

Result<void> set_kept_variables(std::string_view value, ContainerSpec& spec) {
  for (const std::string_view name : split(value, ',')) {
    if (name.empty())
      return fail(Error(ErrorKind::usage, "'" + printable(value) + "' has an empty name")
                      .with_code(ErrorCode::option)
                      .with_hint("write names of variables with one comma between two: NAME,NAME"));
    if (!is_variable_name(name))
      return fail(ErrorKind::usage, "'" + printable(name) + "' is not the name of an environment variable");
    spec.keep_env.emplace_back(name);
  }
  return {};
}

Result<void> set_devices(std::string_view value, ContainerSpec& spec) {
  TRY_ASSIGN(spec.devices, parse_device_names(value));
  return {};
}

Result<void> set_resolve(std::string_view value, ContainerSpec& spec) {
  TRY(ResolveRule::parse(value));
  spec.resolve = value;
  return {};
}

/// What it names is read on the client (plugin/environment_file.hpp), and is beneath the other options.
Result<void> set_environment(std::string_view value, ContainerSpec&) {
  if (printable(value) != value) return fail(ErrorKind::usage, "'" + printable(value) + "' names no file");
  return {};
}

/// What it does is done before there is a specification: ContainerOptions::finish().
Result<void> nothing(std::string_view, ContainerSpec&) {
  return {};
}

template <auto Member, auto Value>
Result<void> set(std::string_view, ContainerSpec& spec) {
  spec.*Member = Value;
  return {};
}

// COMPAT.md section 1.
constexpr std::array kTable = {
    OptionInfo{
        "container-image", "[USER@][REGISTRY#]IMAGE[:TAG|@DIGEST]|PATH|KIND:WHERE",
        "[situla] image to run the tasks in: from a registry; a squashfs file on the node if it begins with . or / or "
        "ends in .sqsh; "
        "dockerd://IMAGE, podman://IMAGE, oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:TAG] or dir:DIR",
        set_image, "IMAGE"},
    OptionInfo{"container-mounts", "SRC[:DST[:FLAGS]][,SRC:DST...]",
               "[situla] bind mounts; SRC may be tmpfs, umount or docker://IMAGE; FLAGS are joined by +, for example "
               "ro+rslave",
               set_mounts, "MOUNTS", nullptr, "SLURM_SITULA_CONTAINER_MOUNTS"},
    OptionInfo{"container-workdir", "PATH", "[situla] working directory inside the container (default: the image's)",
               set_workdir, "WORKDIR"},
    OptionInfo{"container-name", "NAME[:auto|create|exec|no_exec]",
               "[situla] name of a container to make, reuse or join", set_name, "NAME"},
    OptionInfo{"container-save", "PATH", "[situla] save the container to a squashfs file when the step ends", set_save,
               "SAVE"},
    OptionInfo{"container-mount-home", nullptr,
               "[situla] mount the home directory into the container (default: enroot configuration)",
               set<&ContainerSpec::mount_home, Tristate::yes>, "MOUNT_HOME", "no-container-mount-home"},
    OptionInfo{"no-container-mount-home", nullptr, "[situla] do not mount the home directory",
               set<&ContainerSpec::mount_home, Tristate::no>, nullptr, "container-mount-home"},
    OptionInfo{"container-remap-root", nullptr, "[situla] be root inside the container (default: enroot configuration)",
               set<&ContainerSpec::remap_root, Tristate::yes>, "REMAP_ROOT", "no-container-remap-root"},
    OptionInfo{"no-container-remap-root", nullptr, "[situla] do not become root inside the container",
               set<&ContainerSpec::remap_root, Tristate::no>, nullptr, "container-remap-root"},
    OptionInfo{"container-entrypoint", nullptr, "[situla] run the entrypoint of the image",
               set<&ContainerSpec::entrypoint, Tristate::yes>, "ENTRYPOINT", "no-container-entrypoint"},
    OptionInfo{"no-container-entrypoint", nullptr,
               "[situla] do not run the entrypoint of the image (default: plugstack.conf)",
               set<&ContainerSpec::entrypoint, Tristate::no>, nullptr, "container-entrypoint"},
    OptionInfo{"container-entrypoint-log", nullptr, "[situla] print what the entrypoint prints",
               set<&ContainerSpec::entrypoint_log, true>, "ENTRYPOINT_LOG"},
    OptionInfo{"container-writable", nullptr,
               "[situla] let the tasks write to the container's root file system; changes end with the step",
               set<&ContainerSpec::writable, Tristate::yes>, "WRITABLE", "container-readonly"},
    OptionInfo{"container-readonly", nullptr, "[situla] keep the container's root file system read-only",
               set<&ContainerSpec::writable, Tristate::no>, "READONLY", "container-writable"},
    OptionInfo{"container-env", "NAME[,NAME...]", "[situla] variables that keep their value from outside the container",
               set_kept_variables, "ENV", nullptr, "SLURM_SITULA_CONTAINER_ENV"},
    OptionInfo{"container-unshare", "NS[,NS...]", "[situla] namespaces of its own: net, ipc, uts, pid", set_namespaces,
               "UNSHARE"},
    OptionInfo{"container-resolve", "job|always|SECONDS",
               "[situla] when to ask the registry what a tag means: once for all steps of the job, for each step, or "
               "when the last answer is older (default: situla.toml)",
               set_resolve, "RESOLVE"},
    OptionInfo{"container-prefetch", nullptr,
               "[situla] only fetch the image to the nodes, for steps to come; the tasks run outside of it",
               set<&ContainerSpec::prefetch, true>, "PREFETCH"},
    OptionInfo{"container-devices", "VENDOR/CLASS=NAME[,...]|none",
               "[situla] devices that CDI specifications on the node describe, for example amd.com/gpu=all; "
               "situla.dev/hca=NAME|all for InfiniBand and other RDMA adapters",
               set_devices, "DEVICES", nullptr, "SLURM_SITULA_CONTAINER_DEVICES"},
    OptionInfo{"no-container", nullptr,
               "[situla] run the tasks on the host: also where the job, or the container that srun is used in, has one",
               nothing},
    OptionInfo{"no-slurm-inside", nullptr,
               "[situla] no srun, sbatch, squeue and so on in the container (default: as the site has it)",
               set<&ContainerSpec::slurm_inside, false>, "NO_SLURM_INSIDE"},
    OptionInfo{
        "environment", "NAME|FILE",
        "[situla] environment file (EDF): image, mounts, variables and more in one TOML file; NAME.toml in EDF_PATH "
        "(default ~/.edf) or in the site's directory, or a path; other options win over it",
        set_environment},
};

}  // namespace

std::span<const OptionInfo> option_table() {
  return kTable;
}

const OptionInfo* find_option(std::string_view name) {
  const auto table = option_table();
  const auto row = std::find_if(table.begin(), table.end(), [&](const OptionInfo& each) { return each.name == name; });
  return row == table.end() ? nullptr : &*row;
}

const OptionInfo* opposite_of(const OptionInfo& option) {
  return option.opposite == nullptr ? nullptr : find_option(option.opposite);
}

}  // namespace situla
