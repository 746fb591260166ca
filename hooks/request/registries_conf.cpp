#include "hooks/request/registries_conf.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/spec/registry_tables.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMaxRegistriesBytes = size_t{1} << 20U;
constexpr const char* kSite = SITULA_SYSCONF_DIR "/situla.toml";
constexpr const char* kMain = "/etc/containers/registries.conf";
constexpr const char* kDirectory = "/etc/containers/registries.conf.d";

/// Version 1: [registries.insecure] and [registries.block], each with a list of hosts.
Result<void> add_version_1(const toml::table& table, const std::string& file, std::vector<RegistryRule>& rules) {
  for (const char* section : {"insecure", "block"}) {
    const toml::node_view<const toml::node> list = table["registries"][section]["registries"];
    if (!list) continue;
    const std::string where = file + ":" + std::to_string(list.node()->source().begin.line);
    if (!list.is_array())
      return fail(
          Error(ErrorKind::usage, where + ": registries must be a list of hosts").with_code(ErrorCode::site_config));
    for (const toml::node& entry : *list.as_array()) {
      if (!entry.is_string())
        return fail(
            Error(ErrorKind::usage, where + ": registries must be a list of hosts").with_code(ErrorCode::site_config));
      const std::string prefix = normalized_place(entry.as_string()->get());
      auto rule = std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return r.prefix == prefix; });
      if (rule == rules.end()) rule = rules.insert(rules.end(), RegistryRule{prefix, "", false, false, {}, where});
      (std::string_view(section) == "block" ? rule->blocked : rule->insecure) = true;
    }
  }
  return {};
}

Result<void> check_owner(int fd, const std::string& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "stat " + path);
  if (status.st_uid == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fail(Error(ErrorKind::denied, path + " says where images of everybody come from, but others than root can "
                                              "write to it")
                  .with_code(ErrorCode::site_config)
                  .with_hint("chown root " + shell_quote(path) + " && chmod 644 " + shell_quote(path)));
}

/// Later files replace the rules of earlier ones that have the same prefix.
void merge(std::vector<RegistryRule>& rules, std::vector<RegistryRule> more) {
  for (RegistryRule& rule : more) {
    const auto same = std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return r.prefix == rule.prefix; });
    if (same == rules.end())
      rules.push_back(std::move(rule));
    else
      *same = std::move(rule);
  }
}

bool is_missing(const Error& error) {
  return error.kind() == ErrorKind::not_found || error.errnum() == ENOTDIR;
}

Result<void> merge_file(const std::string& path, bool of_root, std::vector<RegistryRule>& rules) {
  if (path.empty()) return {};
  const auto fd = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!fd && is_missing(fd.error())) return {};
  if (!fd)
    return fail(
        Error(fd.error()).with_code(ErrorCode::site_config).with_hint("it may block registries: make it readable"));
  if (of_root) TRY(check_owner(fd->get(), path));
  TRY_ASSIGN(const std::string text, read_all(fd->get(), kMaxRegistriesBytes));
  TRY_ASSIGN(auto more, parse_registries_conf(text, path));
  merge(rules, std::move(more));
  return {};
}

Result<void> merge_directory(const std::string& path, bool of_root, std::vector<RegistryRule>& rules) {
  auto names = list_directory(path);
  if (!names && is_missing(names.error())) return {};
  if (!names) return fail(std::move(names).error().with_code(ErrorCode::site_config));
  std::sort(names->begin(), names->end());
  for (const std::string& name : *names)
    if (name.ends_with(".conf")) TRY(merge_file(path + "/" + name, of_root, rules));
  return {};
}

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

}  // namespace

RuleFiles RuleFiles::of_node() {
  return {kSite, kMain, {kDirectory}, true};
}

RuleFiles RuleFiles::of_user(const Environment& environment) {
  const std::string home = environment.get_or("HOME", "");
  RuleFiles files{kSite, kMain, {kDirectory}, false};
  if (!home.starts_with('/')) return files;
  const std::string own = home + "/.config/containers/registries.conf";
  const std::string own_directory = own + ".d";
  // With a main file of the user's the machine's directory does not count (registries.conf.d(5)).
  if (exists(own)) return {kSite, own, {own_directory}, false};
  files.directories.push_back(own_directory);
  return files;
}

Result<std::vector<RegistryRule>> parse_registries_conf(std::string_view text, const std::string& file) {
  const toml::parse_result table = toml::parse(text);
  if (!table)
    return fail(Error(ErrorKind::usage, file + ":" + std::to_string(table.error().source().begin.line) + ": " +
                                            std::string(table.error().description()))
                    .with_code(ErrorCode::site_config));
  std::vector<RegistryRule> rules;
  if (const toml::node* tables = table.table().get("registry")) {
    TRY_ASSIGN(rules, read_registry_tables(*tables, file, UnknownKeys::ignored));
  }
  TRY(add_version_1(table.table(), file, rules));
  return rules;
}

Result<ImportBudget> load_import_budget(const RuleFiles& files) {
  auto site = SiteConfig::load(files.site);
  if (!site)
    return fail(std::move(site)
                    .error()
                    .with_code(ErrorCode::site_config)
                    .with_hint("everybody must be able to read it: it may limit imports"));
  return site->import_budget;
}

Result<std::vector<RegistryRule>> load_registry_rules(const RuleFiles& files) {
  std::vector<RegistryRule> rules;
  TRY(merge_file(files.main, files.of_root, rules));
  for (const std::string& directory : files.directories) TRY(merge_directory(directory, files.of_root, rules));
  auto site = SiteConfig::load(files.site);
  if (!site)
    return fail(std::move(site)
                    .error()
                    .with_code(ErrorCode::site_config)
                    .with_hint("everybody must be able to read it: it may block registries"));
  merge(rules, std::move(site->registries));
  return rules;
}

}  // namespace situla
