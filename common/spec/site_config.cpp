#include "common/spec/site_config.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/registry_tables.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20U;

constexpr std::array<std::pair<std::string_view, MountKind>, 4> kMountNames = {{{"auto", MountKind::automatic},
                                                                                {"kernel", MountKind::kernel},
                                                                                {"fuse", MountKind::fuse},
                                                                                {"extract", MountKind::extract}}};

constexpr std::array<std::pair<std::string_view, GpuMode>, 4> kGpuNames = {
    {{"native", GpuMode::native},
     {"cdi", GpuMode::cdi},
     {"nvidia-container-cli", GpuMode::nvidia_container_cli},
     {"off", GpuMode::off}}};

// Each setter returns what the key wants when the value is not it, or "" when it was taken.
using Setter = std::function<std::string(const toml::node&, SiteConfig&)>;

Setter boolean(bool SiteConfig::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    if (!value.is_boolean()) return "true or false";
    config.*field = value.as_boolean()->get();
    return "";
  };
}

/// uint64_t, or std::optional of it where the default is not a number.
template <typename Bytes>
Setter size(Bytes SiteConfig::*field, const char* example = "64MiB") {
  return [field, wanted = "a size such as \"" + std::string(example) + "\", or 0"](const toml::node& value,
                                                                                   SiteConfig& config) -> std::string {
    if (value.is_string()) {
      const Result<uint64_t> bytes = parse_size(value.as_string()->get());
      if (!bytes) return wanted;
      config.*field = *bytes;
    } else if (value.is_integer() && value.as_integer()->get() >= 0) {
      config.*field = static_cast<uint64_t>(value.as_integer()->get());
    } else {
      return wanted;
    }
    return "";
  };
}

Setter seconds(std::chrono::seconds SiteConfig::*field, int64_t least) {
  return [field, least](const toml::node& value, SiteConfig& config) -> std::string {
    constexpr int64_t kOneYear = 365L * 24 * 3600;
    if (!value.is_integer() || value.as_integer()->get() < least || value.as_integer()->get() > kOneYear)
      return "a number of seconds, at least " + std::to_string(least);
    config.*field = std::chrono::seconds(value.as_integer()->get());
    return "";
  };
}

std::string set_mount(const toml::node& value, SiteConfig& config) {
  for (const auto& [name, kind] : kMountNames)
    if (value.is_string() && value.as_string()->get() == name) {
      config.mount = kind;
      return "";
    }
  return R"("auto", "kernel", "fuse" or "extract")";
}

std::string set_store_path(const toml::node& value, SiteConfig& config) {
  const std::string text = value.is_string() ? value.as_string()->get() : "";
  if (!text.starts_with('/')) return "an absolute path";
  config.store_path = text;
  return "";
}

/// Both exist so that nothing from a registry is parsed with privilege.
Setter account(std::string SiteConfig::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    const std::string text = value.is_string() ? value.as_string()->get() : "";
    if (text.empty() || text == "root") return "the name of a user other than root";
    config.*field = text;
    return "";
  };
}

std::string set_bytes_per_user(const toml::node& value, SiteConfig& config) {
  constexpr const char* kWanted = "a share such as \"50%\", a size such as \"500GiB\", or 0";
  DiskShare share;
  const std::string text = value.is_string() ? value.as_string()->get() : "";
  if (text.ends_with('%')) {
    const auto percent = parse_unsigned(std::string_view(text).substr(0, text.size() - 1));
    if (!percent || *percent < 1 || *percent > 100) return kWanted;
    share.percent = static_cast<unsigned>(*percent);
  } else if (value.is_string()) {
    const Result<uint64_t> bytes = parse_size(text);
    if (!bytes) return kWanted;
    share.bytes = *bytes;
  } else if (value.is_integer() && value.as_integer()->get() >= 0) {
    share.bytes = static_cast<uint64_t>(value.as_integer()->get());
  } else {
    return kWanted;
  }
  config.bytes_per_user = share;
  return "";
}

template <uint32_t SiteConfig::*kMember>
std::string set_number_per_user(const toml::node& value, SiteConfig& config) {
  constexpr int64_t kMost = 1024;
  if (!value.is_integer() || value.as_integer()->get() < 0 || value.as_integer()->get() > kMost)
    return "a number up to 1024, or 0";
  config.*kMember = static_cast<uint32_t>(value.as_integer()->get());
  return "";
}

std::string set_gpu(const toml::node& value, SiteConfig& config) {
  for (const auto& [name, mode] : kGpuNames)
    if (value.is_string() && value.as_string()->get() == name) {
      config.device_settings.gpu = mode;
      return "";
    }
  return R"("native", "cdi", "nvidia-container-cli" or "off")";
}

Setter device_switch(bool DeviceSettings::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    if (!value.is_boolean()) return "true or false";
    config.device_settings.*field = value.as_boolean()->get();
    return "";
  };
}

Setter device_path(std::string DeviceSettings::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    const std::string text = value.is_string() ? value.as_string()->get() : "";
    if (!text.starts_with('/')) return "an absolute path";
    config.device_settings.*field = text.size() > 1 && text.ends_with('/') ? text.substr(0, text.size() - 1) : text;
    return "";
  };
}

/// `well_formed` says whether a word may stand in the list.
Setter device_words(std::vector<std::string> DeviceSettings::*field, bool (*well_formed)(const std::string&),
                    const char* wanted) {
  return [=](const toml::node& value, SiteConfig& config) -> std::string {
    std::vector<std::string> words;
    if (!value.is_array()) return wanted;
    for (const toml::node& entry : *value.as_array()) {
      if (!entry.is_string() || !well_formed(entry.as_string()->get())) return wanted;
      words.push_back(entry.as_string()->get());
    }
    config.device_settings.*field = std::move(words);
    return "";
  };
}

bool is_absolute(const std::string& path) {
  return path.starts_with('/');
}

Setter limit_count(uint64_t ImportBudget::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    if (!value.is_integer() || value.as_integer()->get() < 1) return "a number, at least 1";
    config.import_budget.*field = static_cast<uint64_t>(value.as_integer()->get());
    return "";
  };
}

Setter limit_size(uint64_t ImportBudget::*field) {
  return [field](const toml::node& value, SiteConfig& config) -> std::string {
    constexpr const char* kWanted = "a size such as \"64MiB\"";
    if (value.is_string()) {
      const Result<uint64_t> bytes = parse_size(value.as_string()->get());
      if (!bytes || *bytes == 0) return kWanted;
      config.import_budget.*field = *bytes;
      return "";
    }
    if (!value.is_integer() || value.as_integer()->get() < 1) return kWanted;
    config.import_budget.*field = static_cast<uint64_t>(value.as_integer()->get());
    return "";
  };
}

struct Key {
  std::string_view name;
  Setter set;
};

/// The one list of what the file may hold.
std::array<Key, 22> keys() {
  return {{
      {"mount", set_mount},
      {"kernel_mount_user_images", boolean(&SiteConfig::kernel_mount_user_images)},
      {"store_path", set_store_path},
      {"service_user", account(&SiteConfig::service_user)},
      {"import_user", account(&SiteConfig::import_user)},
      {"imports_per_user", set_number_per_user<&SiteConfig::imports_per_user>},
      {"mounts_per_user", set_number_per_user<&SiteConfig::mounts_per_user>},
      {"largest_image", size(&SiteConfig::largest_image)},
      {"bytes_per_user", set_bytes_per_user},
      {"store_reserve", size(&SiteConfig::store_reserve, "2GiB")},
      {"image_mount_idle", seconds(&SiteConfig::image_mount_idle, 0)},
      {"root_tmpfs", size(&SiteConfig::root_tmpfs_bytes)},
      {"import_timeout", seconds(&SiteConfig::import_timeout, 1)},
      {"build_timeout", seconds(&SiteConfig::build_timeout, 1)},
      {"gpu", set_gpu},
      {"driver_root", device_path(&DeviceSettings::driver_root)},
      {"device_root", device_path(&DeviceSettings::device_root)},
      {"hide_gpus", device_switch(&DeviceSettings::hide_gpus)},
      {"cuda_compat", device_switch(&DeviceSettings::cuda_compat)},
      {"cdi_directories", device_words(&DeviceSettings::cdi_directories, is_absolute, "a list of absolute paths")},
      {"cdi_hooks", device_switch(&DeviceSettings::cdi_hooks)},
      {"devices",
       device_words(&DeviceSettings::devices, is_device_name, "a list of names like \"vendor.com/class=name\"")},
  }};
}

/// The same for the table [limits].
std::array<Key, 9> limit_keys() {
  return {{
      {"entries", limit_count(&ImportBudget::entries)},
      {"metadata", limit_size(&ImportBudget::metadata)},
      {"xattrs", limit_size(&ImportBudget::xattrs)},
      {"file_size", limit_size(&ImportBudget::file_size)},
      {"unpacked", limit_size(&ImportBudget::unpacked)},
      {"expansion", limit_count(&ImportBudget::expansion)},
      {"layers", limit_count(&ImportBudget::layers)},
      {"manifest_size", limit_size(&ImportBudget::manifest_size)},
      {"config_size", limit_size(&ImportBudget::config_size)},
  }};
}

std::string at(const std::string& where, const toml::source_region& source) {
  return where + ":" + std::to_string(source.begin.line);
}

Result<std::string> read_to_end(int fd, const std::string& path) {
  std::string content;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, "read " + path);
    if (count == 0) return content;
    content.append(buffer.data(), static_cast<size_t>(count));
    if (content.size() > kMaxFileBytes) return fail(ErrorKind::corrupt, "read " + path + ": larger than 1 MiB");
  }
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
                    .with_hint(suggestion(written, names, "known keys")));
  }
  if (const std::string wanted = key->set(value, config); !wanted.empty())
    return fail(ErrorKind::usage, line + ": " + std::string(key->name) + " must be " + wanted);
  return {};
}

Result<void> set_limits(const toml::node& value, const std::string& where, SiteConfig& config) {
  if (!value.is_table())
    return fail(ErrorKind::usage, at(where, value.source()) + ": limits must be a table, written [limits]");
  const auto known = limit_keys();
  for (const auto& [name, limit] : *value.as_table()) TRY(set_key(known, name.str(), limit, where, {}, config));
  return {};
}

}  // namespace

std::string_view to_string(GpuMode mode) {
  for (const auto& [name, value] : kGpuNames)
    if (value == mode) return name;
  return "native";
}

std::string_view to_string(MountKind kind) {
  for (const auto& [name, value] : kMountNames)
    if (value == kind) return name;
  return "auto";
}

Result<SiteConfig> SiteConfig::load(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd && errno == ENOENT) return SiteConfig{};
  if (!fd) return fail_errno(errno, "open " + path);
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "stat " + path);
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, path + " is not a regular file");
  if (status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(
        Error(ErrorKind::denied, path + " decides what runs with privilege, but others than root can write to it")
            .with_hint("chown root " + shell_quote(path) + " && chmod 644 " + shell_quote(path)));
  TRY_ASSIGN(const std::string text, read_to_end(fd.get(), path));
  return parse(text, path);
}

Result<SiteConfig> SiteConfig::parse(std::string_view text, const std::string& where) {
  const toml::parse_result table = toml::parse(text);
  if (!table)
    return fail(ErrorKind::usage, at(where, table.error().source()) + ": " + std::string(table.error().description()));
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
