#include "plugin/options.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"

namespace situla {
namespace {

// COMPAT.md section 1. Order is the order of --help.
constexpr std::array kTable = {
    OptionInfo{
        OptionId::image, "container-image", "[USER@][REGISTRY#]IMAGE[:TAG|@DIGEST]|PATH|KIND:WHERE",
        "[situla] image to run the tasks in: from a registry; a squashfs file on the node if it begins with . or /; "
        "dockerd://IMAGE, podman://IMAGE, oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:TAG] or dir:DIR"},
    OptionInfo{OptionId::mounts, "container-mounts", "SRC[:DST[:FLAGS]][,SRC:DST...]",
               "[situla] bind mounts; SRC may be tmpfs or umount; FLAGS are joined by +, for example ro+rslave"},
    OptionInfo{OptionId::workdir, "container-workdir", "PATH",
               "[situla] working directory inside the container (default: the image's)"},
    OptionInfo{OptionId::name, "container-name", "NAME[:auto|create|exec|no_exec]",
               "[situla] name of a container to make, reuse or join"},
    OptionInfo{OptionId::save, "container-save", "PATH",
               "[situla] save the container to a squashfs file when the step ends"},
    OptionInfo{OptionId::mount_home, "container-mount-home", nullptr,
               "[situla] mount the home directory into the container (default: enroot configuration)"},
    OptionInfo{OptionId::no_mount_home, "no-container-mount-home", nullptr, "[situla] do not mount the home directory"},
    OptionInfo{OptionId::remap_root, "container-remap-root", nullptr,
               "[situla] be root inside the container (default: enroot configuration)"},
    OptionInfo{OptionId::no_remap_root, "no-container-remap-root", nullptr,
               "[situla] do not become root inside the container"},
    OptionInfo{OptionId::entrypoint, "container-entrypoint", nullptr, "[situla] run the entrypoint of the image"},
    OptionInfo{OptionId::no_entrypoint, "no-container-entrypoint", nullptr,
               "[situla] do not run the entrypoint of the image (default: plugstack.conf)"},
    OptionInfo{OptionId::entrypoint_log, "container-entrypoint-log", nullptr,
               "[situla] print what the entrypoint prints"},
    OptionInfo{OptionId::writable, "container-writable", nullptr,
               "[situla] let the tasks write to the container's root file system; changes end with the step"},
    OptionInfo{OptionId::readonly, "container-readonly", nullptr,
               "[situla] keep the container's root file system read-only"},
    OptionInfo{OptionId::env, "container-env", "NAME[,NAME...]",
               "[situla] variables that keep their value from outside the container"},
    OptionInfo{OptionId::unshare, "container-unshare", "NS[,NS...]",
               "[situla] namespaces of its own: net, ipc, uts, pid"},
    OptionInfo{OptionId::devices, "container-devices", "VENDOR/CLASS=NAME[,...]|none",
               "[situla] devices that CDI specifications on the node describe, for example amd.com/gpu=all; "
               "situla.dev/hca=NAME|all for InfiniBand and other RDMA adapters"},
};

// The rest of PYXIS_CONTAINER_ / SITULA_CONTAINER_ and the option it stands for; booleans set one of two.
struct EnvironmentName {
  const char* name;
  OptionId yes;
  std::optional<OptionId> no;
};
constexpr std::array kEnvironment = {
    EnvironmentName{"IMAGE", OptionId::image, {}},
    EnvironmentName{"MOUNTS", OptionId::mounts, {}},
    EnvironmentName{"WORKDIR", OptionId::workdir, {}},
    EnvironmentName{"NAME", OptionId::name, {}},
    EnvironmentName{"SAVE", OptionId::save, {}},
    EnvironmentName{"ENV", OptionId::env, {}},
    EnvironmentName{"UNSHARE", OptionId::unshare, {}},
    EnvironmentName{"DEVICES", OptionId::devices, {}},
    EnvironmentName{"MOUNT_HOME", OptionId::mount_home, OptionId::no_mount_home},
    EnvironmentName{"REMAP_ROOT", OptionId::remap_root, OptionId::no_remap_root},
    EnvironmentName{"ENTRYPOINT", OptionId::entrypoint, OptionId::no_entrypoint},
    EnvironmentName{"ENTRYPOINT_LOG", OptionId::entrypoint_log, {}},
    EnvironmentName{"WRITABLE", OptionId::writable, OptionId::readonly},
    EnvironmentName{"READONLY", OptionId::readonly, OptionId::writable},
};

constexpr std::array<std::pair<OptionId, OptionId>, 4> kOpposites = {{
    {OptionId::mount_home, OptionId::no_mount_home},
    {OptionId::remap_root, OptionId::no_remap_root},
    {OptionId::entrypoint, OptionId::no_entrypoint},
    {OptionId::writable, OptionId::readonly},
}};

const OptionInfo& info_of(OptionId id) {
  return *std::find_if(kTable.begin(), kTable.end(), [id](const OptionInfo& row) { return row.id == id; });
}

// As Slurm spells an option in the variable by which a job hands it on to its steps.
std::string inherited_variable(OptionId id, std::string_view plugin = "situla") {
  std::string name = "_SLURM_SPANK_OPTION_" + std::string(plugin) + "_" + info_of(id).name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// What spank_job_control_setenv() and Slurm itself put before such a name in the job's environment.
constexpr std::string_view kJobPrefix = "SLURM_SPANK_";

std::string spelled(OptionId id) {
  return std::string("--") + info_of(id).name;
}

// Options that may be given several times and add up, each with the variable in which srun, sbatch and salloc hand on
// the sum. --export=NONE leaves variables out, but not those that begin with SLURM_.
constexpr std::array<std::pair<OptionId, const char*>, 3> kSums = {{
    {OptionId::mounts, "SLURM_SITULA_CONTAINER_MOUNTS"},
    {OptionId::env, "SLURM_SITULA_CONTAINER_ENV"},
    {OptionId::devices, "SLURM_SITULA_CONTAINER_DEVICES"},
}};

bool accumulates(OptionId id) {
  return std::any_of(kSums.begin(), kSums.end(), [id](const auto& row) { return row.first == id; });
}

constexpr std::array<std::pair<std::string_view, NameFlag>, 5> kNameFlags = {{{"", NameFlag::automatic},
                                                                              {"auto", NameFlag::automatic},
                                                                              {"create", NameFlag::create},
                                                                              {"exec", NameFlag::exec},
                                                                              {"no_exec", NameFlag::no_exec}}};
constexpr std::array<std::pair<std::string_view, bool Isolation::*>, 4> kNamespaces = {
    {{"net", &Isolation::net}, {"ipc", &Isolation::ipc}, {"uts", &Isolation::uts}, {"pid", &Isolation::pid}}};

struct ContainerName {
  std::string name;
  NameFlag flag = NameFlag::automatic;
};

/// NAME[:FLAG]. The name becomes a directory "pyxis_<jobid>_NAME" on the node, of at most 255 bytes.
Result<ContainerName> parse_name(std::string_view value) {
  constexpr size_t kLongest = 230;
  constexpr std::string_view kRefused = "/:\"'\\";
  ContainerName result;
  const size_t colon = value.find(':');
  result.name = value.substr(0, colon);
  const std::string_view flag = colon == std::string_view::npos ? "" : value.substr(colon + 1);
  const auto* row = std::find_if(kNameFlags.begin(), kNameFlags.end(), [&](const auto& r) { return r.first == flag; });
  if (row == kNameFlags.end())
    return fail(ErrorKind::usage,
                R"(flag must be "auto", "create", "exec" or "no_exec", not ")" + printable(flag) + '"');
  result.flag = row->second;
  if (result.name.empty()) return fail(ErrorKind::usage, "the name is empty");
  if (result.name.size() > kLongest)
    return fail(ErrorKind::usage, "the name is longer than " + std::to_string(kLongest) + " characters");
  for (const char c : result.name)
    if (c <= ' ' || c > '~' || kRefused.find(c) != std::string_view::npos)
      return fail(Error(ErrorKind::usage, "'" + printable(result.name) + "' cannot be the name of a container")
                      .with_hint("it becomes a directory's name: letters, digits and . _ - + @ = are fine"));
  return result;
}

Result<Isolation> parse_namespaces(std::string_view value) {
  Isolation result;
  for (const std::string_view name : split_nonempty(value, ',')) {
    const auto* row =
        std::find_if(kNamespaces.begin(), kNamespaces.end(), [&](const auto& r) { return r.first == name; });
    if (row == kNamespaces.end())
      return fail(Error(ErrorKind::usage, "unknown namespace: " + printable(name)).with_hint("net, ipc, uts and pid"));
    result.*(row->second) = true;
  }
  return result;
}

Result<void> check_save(std::string_view path) {
  if (path.ends_with('/')) return fail(ErrorKind::usage, printable(path) + " is not the name of a file");
  return {};
}

Result<void> check_value(OptionId id, std::string_view value) {
  if (info_of(id).argument != nullptr && value.empty()) return fail(ErrorKind::usage, "needs a value");
  if (value.find('\0') != std::string_view::npos) return fail(ErrorKind::usage, "value holds a NUL byte");
  if (id == OptionId::image) return check_image(value);
  if (id == OptionId::mounts) {
    TRY_ASSIGN(const auto mounts, parse_mount_options(value));
    return {};
  }
  if (id == OptionId::name) return parse_name(value).map([](const auto&) {});
  if (id == OptionId::unshare) return parse_namespaces(value).map([](const auto&) {});
  if (id == OptionId::save) return check_save(value);
  if (id == OptionId::devices) return parse_device_names(value).map([](const auto&) {});
  if (id == OptionId::env) {
    for (const std::string_view name : split_nonempty(value, ','))
      if (!is_variable_name(name))
        return fail(ErrorKind::usage, "'" + printable(name) + "' is not the name of an environment variable");
  }
  return {};
}

std::optional<bool> parse_boolean(std::string_view value) {
  if (value == "1" || value == "true" || value == "yes" || value == "y") return true;
  if (value == "0" || value == "false" || value == "no" || value == "n") return false;
  return std::nullopt;
}

}  // namespace

std::span<const OptionInfo> option_table() {
  return kTable;
}

Result<void> ContainerOptions::set(OptionId id, std::string_view value) {
  TRY_CONTEXT(spelled(id), check_value(id, value));
  for (const auto& [yes, no] : kOpposites) {
    if ((id == yes && given(no)) || (id == no && given(yes)))
      return fail(ErrorKind::usage, "both " + spelled(yes) + " and " + spelled(no) + " were given");
  }
  const auto [entry, inserted] = values_.try_emplace(id, value);
  if (inserted || entry->second == value) return {};
  if (!accumulates(id)) return fail(ErrorKind::usage, spelled(id) + ": specified multiple times");
  entry->second += ',';
  entry->second += value;
  repeated_.insert(id);
  return {};
}

std::vector<std::pair<std::string, std::string>> ContainerOptions::sums() const {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [id, variable] : kSums)
    if (given(id)) variables.emplace_back(variable, repeated_.contains(id) ? values_.at(id) : std::string());
  return variables;
}

void ContainerOptions::inherit_sums(const Lookup& lookup) {
  for (const auto& [id, variable] : kSums) {
    const auto sum = lookup(variable);
    const auto last = lookup(inherited_variable(id));
    if (!sum || !last || !sum->ends_with("," + *last)) continue;
    values_.insert_or_assign(id, *sum);
    repeated_.insert(id);
  }
}

Result<void> ContainerOptions::apply_submitted(const Lookup& lookup) {
  if (!values_.empty()) return {};
  for (const OptionInfo& row : kTable)
    if (const auto value = lookup(std::string(kJobPrefix) + inherited_variable(row.id))) TRY(set(row.id, *value));
  return {};
}

std::vector<std::pair<std::string, std::string>> ContainerOptions::pyxis_variables() const {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& [id, value] : values_) variables.emplace_back(inherited_variable(id, "pyxis"), value);
  return variables;
}

std::vector<std::string> ContainerOptions::unset_by_script(const Lookup& lookup) {
  std::vector<std::string> names;
  for (const OptionInfo& row : kTable) {
    // As a batch script and as salloc's shell see them.
    for (const std::string_view prefix : {kJobPrefix, std::string_view()}) {
      std::string name = std::string(prefix) + inherited_variable(row.id);
      if (lookup(name) && !lookup(std::string(prefix) + inherited_variable(row.id, "pyxis")))
        names.push_back(std::move(name));
    }
  }
  return names;
}

void ContainerOptions::apply_sums(const Lookup& lookup) {
  for (const auto& [id, variable] : kSums) {
    const auto sum = lookup(variable);
    const auto entry = values_.find(id);
    // Another end: it is of the job, and this step has its own.
    if (sum && entry != values_.end() && sum->ends_with("," + entry->second) && check_value(id, *sum))
      entry->second = *sum;
  }
}

Result<void> ContainerOptions::apply_environment(const Lookup& lookup) {
  for (const EnvironmentName& row : kEnvironment) {
    if (given(row.yes) || (row.no && given(*row.no))) continue;
    if (defaults_.contains(row.yes) || (row.no && defaults_.contains(*row.no))) continue;
    for (const char* prefix : {"SITULA_CONTAINER_", "PYXIS_CONTAINER_"}) {
      const std::string variable = std::string(prefix) + row.name;
      const auto value = lookup(variable);
      if (!value || value->empty()) continue;
      if (info_of(row.yes).argument != nullptr) {
        defaults_.emplace(row.yes, *value);
      } else if (const auto boolean = parse_boolean(*value)) {
        if (*boolean)
          defaults_.emplace(row.yes, "");
        else if (row.no)
          defaults_.emplace(*row.no, "");
      } else {
        continue;  // COMPAT.md 1: other spellings are ignored
      }
      break;
    }
  }
  // A default is checked only when there will be a container: a stray variable must not break jobs without one.
  if (!wants_container()) return {};
  for (const auto& [id, value] : defaults_)
    TRY_CONTEXT(spelled(id) + " (from the environment)", check_value(id, value));
  return {};
}

Result<std::optional<ContainerSpec>> ContainerOptions::finish() const {
  const auto value = [&](OptionId id) -> std::optional<std::string> {
    if (const auto found = values_.find(id); found != values_.end()) return found->second;
    if (const auto found = defaults_.find(id); found != defaults_.end()) return found->second;
    return std::nullopt;
  };
  const auto tristate = [&](OptionId yes, OptionId no) {
    return value(yes) ? Tristate::yes : value(no) ? Tristate::no : Tristate::unset;
  };
  if (!wants_container()) return std::optional<ContainerSpec>();

  ContainerSpec spec;
  spec.image = value(OptionId::image).value_or("");
  if (const auto name = value(OptionId::name)) {
    TRY_ASSIGN(ContainerName parsed, parse_name(*name));
    spec.name = std::move(parsed.name);
    spec.name_flag = parsed.flag;
  }
  spec.save = value(OptionId::save).value_or("");
  if (const auto namespaces = value(OptionId::unshare)) {
    TRY_ASSIGN(spec.unshare, parse_namespaces(*namespaces));
  }
  spec.entrypoint = tristate(OptionId::entrypoint, OptionId::no_entrypoint);
  spec.entrypoint_log = value(OptionId::entrypoint_log).has_value();
  if (const auto mounts = value(OptionId::mounts)) {
    TRY_ASSIGN(spec.mounts, parse_mount_options(*mounts));
  }
  spec.workdir = value(OptionId::workdir).value_or("");
  if (const auto names = value(OptionId::env))
    for (const std::string_view name : split_nonempty(*names, ',')) spec.keep_env.emplace_back(name);
  if (const auto names = value(OptionId::devices)) {
    TRY_ASSIGN(spec.devices, parse_device_names(*names));
  }
  spec.mount_home = tristate(OptionId::mount_home, OptionId::no_mount_home);
  spec.remap_root = tristate(OptionId::remap_root, OptionId::no_remap_root);
  spec.writable = tristate(OptionId::writable, OptionId::readonly);
  return std::optional(std::move(spec));
}

bool ContainerOptions::wants_container() const {
  return given(OptionId::image) || given(OptionId::name) || defaults_.contains(OptionId::image) ||
         defaults_.contains(OptionId::name);
}

std::vector<std::string> ContainerOptions::warnings() const {
  std::vector<std::string> lines;
  if (wants_container()) return lines;
  for (const auto& [id, value] : values_)
    lines.push_back("ignoring " + spelled(id) + " because neither --container-image nor --container-name is set");
  return lines;
}

}  // namespace situla
