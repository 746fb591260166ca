#include "common/spec/site_config.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <type_traits>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/registry_tables.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20U;

// In the order of the values.
constexpr std::array<std::pair<std::string_view, MountKind>, 4> kMountNames = {{{"auto", MountKind::automatic},
                                                                                {"kernel", MountKind::kernel},
                                                                                {"fuse", MountKind::fuse},
                                                                                {"extract", MountKind::extract}}};

constexpr std::array<std::pair<std::string_view, OwnerWay>, 4> kOwnerNames = {
    {{"auto", OwnerWay::automatic}, {"idmap", OwnerWay::idmap}, {"reflink", OwnerWay::reflink}, {"dm", OwnerWay::dm}}};

constexpr std::array<std::pair<std::string_view, Distribute>, 3> kDistributeNames = {
    {{"registry", Distribute::registry}, {"sbcast", Distribute::sbcast}, {"shared", Distribute::shared}}};

constexpr std::array<std::pair<std::string_view, JobComment>, 3> kJobCommentNames = {
    {{"off", JobComment::off}, {"comment", JobComment::comment}, {"admin_comment", JobComment::admin_comment}}};

constexpr std::array<std::pair<std::string_view, GpuMode>, 4> kGpuNames = {
    {{"native", GpuMode::native},
     {"cdi", GpuMode::cdi},
     {"nvidia-container-cli", GpuMode::nvidia_container_cli},
     {"off", GpuMode::off}}};

/// Other vendors' GPUs need no tool.
constexpr std::array<std::pair<std::string_view, GpuMode>, 3> kNodeGpuNames = {
    {{"native", GpuMode::native}, {"cdi", GpuMode::cdi}, {"off", GpuMode::off}}};

constexpr std::array<Fabric, 4> kFabrics = {Fabric::cxi, Fabric::ofi, Fabric::ucx, Fabric::mpi};

/// What a key sets, wherever it lies in the settings.
template <typename T>
T& in(SiteConfig& config, T SiteConfig::*field) {
  return config.*field;
}
template <typename T>
T& in(SiteConfig& config, T DeviceSettings::*field) {
  return config.device_settings.*field;
}
template <typename T>
T& in(SiteConfig& config, T ImportBudget::*field) {
  return config.import_budget.*field;
}

// Each setter returns what the key wants when the value is not it, or "" when it was taken.
using Setter = std::function<std::string(const toml::node&, SiteConfig&)>;

/// `read` makes something of the value that the field can be, or nullopt.
template <typename Field, typename Read>
Setter setter(Field field, const std::string& wanted, Read read) {
  return [=](const toml::node& value, SiteConfig& config) -> std::string {
    auto found = read(value);
    if (!found) return wanted;
    auto& target = in(config, field);
    target = static_cast<std::remove_reference_t<decltype(target)>>(*std::move(found));
    return "";
  };
}

std::string text_of(const toml::node& value) {
  return value.value_exact<std::string>().value_or("");
}

/// "64MiB", or a number.
std::optional<uint64_t> bytes_of(const toml::node& value) {
  if (const auto text = value.value_exact<std::string>())
    if (const Result<uint64_t> bytes = parse_size(*text)) return *bytes;
  const auto number = value.value_exact<int64_t>();
  return number && *number >= 0 ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

template <typename Field>
Setter boolean(Field field) {
  return setter(field, "true or false", [](const toml::node& value) { return value.value_exact<bool>(); });
}

template <typename Field>
Setter number(Field field, int64_t least, int64_t most, const std::string& wanted) {
  return setter(field, wanted, [=](const toml::node& value) {
    const auto number = value.value_exact<int64_t>();
    return number && *number >= least && *number <= most ? number : std::nullopt;
  });
}

Setter count(uint64_t ImportBudget::*field) {
  return number(field, 1, INT64_MAX, "a number, at least 1");
}

Setter per_user(uint32_t SiteConfig::*field) {
  return number(field, 0, 1024, "a number up to 1024, or 0");
}

Setter seconds(std::chrono::seconds SiteConfig::*field, int64_t least) {
  constexpr int64_t kOneYear = 365L * 24 * 3600;
  return number(field, least, kOneYear,
                "a number of seconds, at least " + std::to_string(least) + " and at most a year");
}

/// uint64_t, or std::optional of it where the default is not a number.
template <typename Bytes>
Setter size(Bytes SiteConfig::*field, const std::string& example = "64MiB") {
  return setter(field, "a size such as \"" + example + "\", or 0", bytes_of);
}

Setter size(uint64_t ImportBudget::*field) {
  return setter(field, "a size such as \"64MiB\"", [](const toml::node& value) {
    const auto bytes = bytes_of(value);
    return bytes && *bytes > 0 ? bytes : std::nullopt;
  });
}

template <typename Field, typename Names>
Setter one_of(Field field, const Names& names, const char* wanted) {
  return setter(field, wanted, [&names](const toml::node& value) {
    const std::string text = text_of(value);
    const auto* row = std::find_if(names.begin(), names.end(), [&](const auto& each) { return each.first == text; });
    return row == names.end() ? std::nullopt : std::optional(row->second);
  });
}

template <typename Field, typename Accept>
Setter text(Field field, const char* wanted, Accept accept) {
  return setter(field, wanted, [accept](const toml::node& value) {
    std::string text = text_of(value);
    return accept(text) ? std::optional(std::move(text)) : std::nullopt;
  });
}

bool is_absolute(const std::string& path) {
  return path.starts_with('/');
}

bool is_command_for_containers(const std::string& name) {
  return is_slurm_command(name);
}

/// Without slashes at its end: other names are made of it.
bool is_directory(std::string& path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return is_absolute(path);
}

bool is_directory_or_empty(std::string& path) {
  return path.empty() || is_directory(path);
}

/// Both exist so that nothing from a registry is parsed with privilege.
Setter account(std::string SiteConfig::*field) {
  return text(field, "the name of a user other than root",
              [](const std::string& name) { return !name.empty() && name != "root"; });
}

Setter device_path(std::string DeviceSettings::*field) {
  return text(field, "an absolute path", is_directory);
}

std::optional<DiskShare> share_of(const toml::node& value) {
  const std::string text = text_of(value);
  if (text.ends_with('%')) {
    const auto percent = parse_unsigned(std::string_view(text).substr(0, text.size() - 1));
    if (!percent || *percent < 1 || *percent > 100) return std::nullopt;
    return DiskShare{static_cast<unsigned>(*percent), 0};
  }
  const auto bytes = bytes_of(value);
  return bytes ? std::optional(DiskShare{0, *bytes}) : std::nullopt;
}

std::optional<ResolveRule> resolve_rule_of(const toml::node& value) {
  const auto number = value.value_exact<int64_t>();
  const auto rule = ResolveRule::parse(number ? std::to_string(*number) : text_of(value));
  return rule ? std::optional(*rule) : std::nullopt;
}

/// `well_formed` says whether a word may stand in the list.
template <typename Field>
Setter words(Field field, bool (*well_formed)(const std::string&), const char* wanted) {
  return setter(field, wanted, [=](const toml::node& value) -> std::optional<std::vector<std::string>> {
    std::vector<std::string> words;
    if (!value.is_array()) return std::nullopt;
    for (const toml::node& entry : *value.as_array()) {
      if (!entry.is_string() || !well_formed(text_of(entry))) return std::nullopt;
      words.push_back(text_of(entry));
    }
    return words;
  });
}

/// Each value once, in the order of the table.
Setter fabric_parts(std::vector<Fabric> DeviceSettings::*field) {
  return setter(field, R"(a list of "cxi", "ofi", "ucx" and "mpi")",
                [](const toml::node& value) -> std::optional<std::vector<Fabric>> {
                  std::vector<Fabric> parts;
                  if (!value.is_array()) return std::nullopt;
                  for (const toml::node& entry : *value.as_array()) {
                    const std::string text = text_of(entry);
                    const auto* part = std::find_if(kFabrics.begin(), kFabrics.end(),
                                                    [&](Fabric each) { return to_string(each) == text; });
                    if (part == kFabrics.end()) return std::nullopt;
                    parts.push_back(*part);
                  }
                  std::sort(parts.begin(), parts.end());
                  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
                  return parts;
                });
}

/// { first, first_uid, users }, all of them.
std::optional<IdArea> area_of(const toml::table& table) {
  const auto number = [&](const char* name) {
    const auto value = table[name].value_exact<int64_t>();
    return static_cast<uint64_t>(std::max<int64_t>(value.value_or(0), 0));
  };
  const IdArea area{number("first"), number("first_uid"), number("users")};
  return table.size() == 3 && area.problem().empty() ? std::optional(area) : std::nullopt;
}

std::optional<IdRangeRule> id_ranges_of(const toml::node& value) {
  if (const toml::table* table = value.as_table()) {
    const auto area = area_of(*table);
    return area ? std::optional(IdRangeRule{SubordinateFiles::automatic, *area}) : std::nullopt;
  }
  const std::string text = text_of(value);
  for (const auto& [name, files] :
       {std::pair("auto", SubordinateFiles::automatic), std::pair("files", SubordinateFiles::always),
        std::pair("off", SubordinateFiles::never)})
    if (text == name) return IdRangeRule{files, {}};
  return std::nullopt;
}

struct Key {
  std::string_view name;
  Setter set;
};

/// The one list of what the file may hold.
std::array<Key, 39> keys() {
  return {{
      {"mount", one_of(&SiteConfig::mount, kMountNames, R"("auto", "kernel", "fuse" or "extract")")},
      {"image_owner", one_of(&SiteConfig::image_owner, kOwnerNames, R"("auto", "idmap", "reflink" or "dm")")},
      {"id_ranges",
       setter(&SiteConfig::id_ranges,
              "\"auto\", \"files\", \"off\" or { first = ID, first_uid = UID, users = NUMBER }, 65536 ids for each "
              "user from first on, none of them a user's own and none above 4294967294",
              id_ranges_of)},
      {"kernel_mount_user_images", boolean(&SiteConfig::kernel_mount_user_images)},
      {"store_path", text(&SiteConfig::store_path, "an absolute path", is_directory)},
      {"distribute", one_of(&SiteConfig::distribute, kDistributeNames, R"("registry", "sbcast" or "shared")")},
      {"service_user", account(&SiteConfig::service_user)},
      {"import_user", account(&SiteConfig::import_user)},
      {"imports_per_user", per_user(&SiteConfig::imports_per_user)},
      {"mounts_per_user", per_user(&SiteConfig::mounts_per_user)},
      {"largest_image", size(&SiteConfig::largest_image)},
      {"bytes_per_user",
       setter(&SiteConfig::bytes_per_user, "a share such as \"50%\", a size such as \"500GiB\", or 0", share_of)},
      {"store_reserve", size(&SiteConfig::store_reserve, "2GiB")},
      {"store_max",
       setter(&SiteConfig::store_max, "a share such as \"80%\", a size such as \"500GiB\", or 0", share_of)},
      {"local_tier", text(&SiteConfig::local_tier, "an absolute path, or \"\"", is_directory_or_empty)},
      {"local_tier_max",
       setter(&SiteConfig::local_tier_max, "a share such as \"50%\", a size such as \"500GiB\", or 0", share_of)},
      {"image_age", seconds(&SiteConfig::image_age, 0)},
      {"resolve", setter(&SiteConfig::resolve, R"("job", "always" or a number of seconds)", resolve_rule_of)},
      {"resolve_choice", boolean(&SiteConfig::resolve_choice)},
      {"grant_lifetime", seconds(&SiteConfig::grant_lifetime, 0)},
      {"grant_offline", seconds(&SiteConfig::grant_offline, 0)},
      {"image_mount_idle", seconds(&SiteConfig::image_mount_idle, 0)},
      {"root_tmpfs", size(&SiteConfig::root_tmpfs_bytes)},
      {"json_log", boolean(&SiteConfig::json_log)},
      {"job_comment", one_of(&SiteConfig::job_comment, kJobCommentNames, R"("off", "comment" or "admin_comment")")},
      {"slurm_inside", words(&SiteConfig::slurm_inside, is_command_for_containers,
                             "a list of srun, sbatch, salloc, squeue, scancel, sinfo, scontrol, sacct and sbcast")},
      {"import_timeout", seconds(&SiteConfig::import_timeout, 1)},
      {"build_timeout", seconds(&SiteConfig::build_timeout, 1)},
      {"gpu", one_of(&DeviceSettings::gpu, kGpuNames, R"("native", "cdi", "nvidia-container-cli" or "off")")},
      {"amd_gpu", one_of(&DeviceSettings::amd_gpu, kNodeGpuNames, R"("native", "cdi" or "off")")},
      {"intel_gpu", one_of(&DeviceSettings::intel_gpu, kNodeGpuNames, R"("native", "cdi" or "off")")},
      {"driver_root", device_path(&DeviceSettings::driver_root)},
      {"device_root", device_path(&DeviceSettings::device_root)},
      {"hide_gpus", boolean(&DeviceSettings::hide_gpus)},
      {"cuda_compat", boolean(&DeviceSettings::cuda_compat)},
      {"cdi_directories", words(&DeviceSettings::cdi_directories, is_absolute, "a list of absolute paths")},
      {"cdi_hooks", boolean(&DeviceSettings::cdi_hooks)},
      {"fabric", fabric_parts(&DeviceSettings::fabric)},
      {"devices", words(&DeviceSettings::devices, is_device_name, "a list of names like \"vendor.com/class=name\"")},
  }};
}

/// The same for the table [limits].
std::array<Key, 9> limit_keys() {
  return {{
      {"entries", count(&ImportBudget::entries)},
      {"metadata", size(&ImportBudget::metadata)},
      {"xattrs", size(&ImportBudget::xattrs)},
      {"file_size", size(&ImportBudget::file_size)},
      {"unpacked", size(&ImportBudget::unpacked)},
      {"expansion", count(&ImportBudget::expansion)},
      {"layers", count(&ImportBudget::layers)},
      {"manifest_size", size(&ImportBudget::manifest_size)},
      {"config_size", size(&ImportBudget::config_size)},
  }};
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): each std::function owns what it has allocated

std::string at(const std::string& where, const toml::source_region& source) {
  return where + ":" + std::to_string(source.begin.line);
}

/// Names of tables that other functions read; suggested beside the keys.
using Names = std::vector<std::string_view>;

Result<void> set_key(std::span<const Key> known, std::string_view written, const toml::node& value,
                     const std::string& where, const Names& tables, SiteConfig& config) {
  const std::string line = at(where, value.source());
  const auto key = std::find_if(known.begin(), known.end(), [&](const Key& k) { return k.name == written; });
  if (key == known.end()) {
    Names names;
    for (const Key& k : known) names.push_back(k.name);
    names.insert(names.end(), tables.begin(), tables.end());
    return fail(Error(ErrorKind::usage, line + ": unknown key \"" + printable(written) + "\"")
                    .with_code(ErrorCode::site_config)
                    .with_hint(suggestion(written, names, "known keys")));
  }
  if (const std::string wanted = key->set(value, config); !wanted.empty())
    return fail(Error(ErrorKind::usage, line + ": " + std::string(key->name) + " must be " + wanted)
                    .with_code(ErrorCode::site_config));
  return {};
}

Result<void> set_limits(const toml::node& value, const std::string& where, SiteConfig& config) {
  if (!value.is_table())
    return fail(Error(ErrorKind::usage, at(where, value.source()) + ": limits must be a table, written [limits]")
                    .with_code(ErrorCode::site_config));
  const auto known = limit_keys();
  for (const auto& [name, limit] : *value.as_table()) TRY(set_key(known, name.str(), limit, where, {}, config));
  return {};
}

}  // namespace

std::string_view to_string(GpuMode mode) {
  return kGpuNames.at(static_cast<size_t>(mode)).first;
}

std::string_view to_string(MountKind kind) {
  return kMountNames.at(static_cast<size_t>(kind)).first;
}

std::string_view to_string(OwnerWay way) {
  return kOwnerNames.at(static_cast<size_t>(way)).first;
}

std::string_view to_string(JobComment which) {
  return kJobCommentNames.at(static_cast<size_t>(which)).first;
}

std::string_view to_string(Distribute way) {
  return kDistributeNames.at(static_cast<size_t>(way)).first;
}

Result<SiteConfig> SiteConfig::load(const std::string& path) {
  const auto fd = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!fd && fd.error().errnum() == ENOENT) return SiteConfig{};
  if (!fd) return fail(Error(fd.error()).with_code(ErrorCode::site_config));
  struct stat status {};
  if (fstat(fd->get(), &status) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(status.st_mode))
    return fail(Error(ErrorKind::usage, path + " is not a regular file").with_code(ErrorCode::site_config));
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(
        Error(ErrorKind::denied, path + " decides what runs with privilege, but others than root can write to it")
            .with_code(ErrorCode::site_config)
            .with_hint("chown root " + shell_quote(path) + " && chmod 644 " + shell_quote(path)));
  const auto text = read_all(fd->get(), kMaxFileBytes);
  if (!text && text.error().errnum() != 0) return fail_errno(text.error().errnum(), "read " + path);
  if (!text)
    return fail(Error(ErrorKind::corrupt, "read " + path + ": larger than 1 MiB").with_code(ErrorCode::site_config));
  return parse(*text, path);
}

Result<SiteConfig> SiteConfig::parse(std::string_view text, const std::string& where) {
  const toml::parse_result table = toml::parse(text);
  if (!table)
    return fail(
        Error(ErrorKind::usage, at(where, table.error().source()) + ": " + std::string(table.error().description()))
            .with_code(ErrorCode::site_config));
  SiteConfig config;
  const auto known = keys();
  for (const auto& [name, value] : table.table()) {
    const std::string_view written = name.str();
    if (written == "registry") {
      TRY_ASSIGN(config.registries, read_registry_tables(value, where, UnknownKeys::refused));
    } else if (written == "limits") {
      TRY(set_limits(value, where, config));
    } else {
      TRY(set_key(known, written, value, where, {"registry", "limits"}, config));
    }
  }
  return config;
}

}  // namespace situla
