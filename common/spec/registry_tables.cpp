#include "common/spec/registry_tables.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>

#include "common/base/text.hpp"

namespace situla {
namespace {

/// HOST[:PORT][/PATH], or with a wildcard *.HOST.
bool is_place(std::string_view text, bool wildcard) {
  const bool star = wildcard && text.find("*.") == 0;
  if (star) text.remove_prefix(2);
  if (text.empty() || text.front() == '/' || text.back() == '/' || printable(text) != text) return false;
  if (text.find_first_of(star ? "/: \t?#*\\" : " \t?#*\\") != std::string_view::npos) return false;
  // "USER@HOST" would choose whose login is shown there.
  if (text.substr(0, text.find('/')).find('@') != std::string_view::npos) return false;
  return text.find("://") == std::string_view::npos;
}

/// One table with its place in the file; what it gives out is checked.
class Table {
 public:
  Table(const toml::table& table, std::string file) : table_(table), file_(std::move(file)) {}

  [[nodiscard]] std::string where() const { return file_ + ":" + std::to_string(table_.source().begin.line); }
  [[nodiscard]] bool has(std::string_view name) const { return table_.contains(name); }
  [[nodiscard]] const toml::node* node(std::string_view name) const { return table_.get(name); }

  [[nodiscard]] Error wrong(std::string_view name, std::string_view wanted) const {
    const toml::node* node = table_.get(name);
    const std::string line = node == nullptr ? where() : file_ + ":" + std::to_string(node->source().begin.line);
    return Error(ErrorKind::usage, line + ": " + std::string(name) + " must be " + std::string(wanted))
        .with_code(ErrorCode::site_config);
  }
  Result<void> check_keys(std::initializer_list<std::string_view> known) const {
    for (const auto& [name, value] : table_) {
      if (std::find(known.begin(), known.end(), name.str()) != known.end()) continue;
      return fail(Error(ErrorKind::usage, file_ + ":" + std::to_string(value.source().begin.line) + ": unknown key \"" +
                                              printable(name.str()) + "\"")
                      .with_code(ErrorCode::site_config)
                      .with_hint(suggestion(name.str(), known, "known keys here")));
    }
    return {};
  }
  /// An empty one when it is not there.
  template <typename T>
  [[nodiscard]] Result<T> value(std::string_view name, std::string_view wanted) const {
    const toml::node* node = table_.get(name);
    if (node == nullptr) return T();
    if (const auto found = node->value_exact<T>()) return *found;
    return fail(wrong(name, wanted));
  }
  [[nodiscard]] Result<bool> boolean(std::string_view name) const { return value<bool>(name, "true or false"); }
  [[nodiscard]] Result<std::string> text(std::string_view name) const { return value<std::string>(name, "a string"); }
  /// A prefix or location; empty when it is not there.
  [[nodiscard]] Result<std::string> place(std::string_view name, bool wildcard) const {
    auto written = text(name);
    if (!written || written->empty()) return written;
    if (!is_place(*written, wildcard))
      return fail(Error(wrong(name, "HOST[:PORT][/PATH]"))
                      .with_code(ErrorCode::site_config)
                      .with_hint(wildcard ? "without https://, and with \"*.\" only in front of a host alone"
                                          : "without https://"));
    return normalized_place(*written);
  }

 private:
  const toml::table& table_;
  std::string file_;
};

Result<RegistryMirror> read_mirror(const Table& table, bool digest_only, UnknownKeys unknown) {
  if (unknown == UnknownKeys::refused) TRY(table.check_keys({"location", "insecure", "pull-from-mirror"}));
  RegistryMirror mirror;
  TRY_ASSIGN(mirror.location, table.place("location", false));
  if (mirror.location.empty())
    return fail(
        Error(ErrorKind::usage, table.where() + ": a mirror needs a location").with_code(ErrorCode::site_config));
  TRY_ASSIGN(mirror.insecure, table.boolean("insecure"));
  TRY_ASSIGN(const std::string pull, table.text("pull-from-mirror"));
  if (digest_only && !pull.empty())
    return fail(table.wrong("pull-from-mirror", "absent where mirror-by-digest-only is set"));
  if (pull == "digest-only" || digest_only)
    mirror.pull = RegistryMirror::Pull::digest_only;
  else if (pull == "tag-only")
    mirror.pull = RegistryMirror::Pull::tag_only;
  else if (!pull.empty() && pull != "all")
    return fail(table.wrong("pull-from-mirror", R"("all", "digest-only" or "tag-only")"));
  return mirror;
}

Result<RegistryRule> read_rule(const Table& table, const std::string& file, UnknownKeys unknown) {
  if (unknown == UnknownKeys::refused)
    TRY(table.check_keys({"prefix", "location", "insecure", "blocked", "mirror-by-digest-only", "mirror"}));
  RegistryRule rule;
  rule.where = table.where();
  TRY_ASSIGN(rule.location, table.place("location", false));
  TRY_ASSIGN(rule.prefix, table.place("prefix", true));
  if (rule.prefix.empty()) rule.prefix = rule.location;
  if (rule.prefix.empty())
    return fail(Error(ErrorKind::usage, rule.where + ": a registry needs a prefix or a location")
                    .with_code(ErrorCode::site_config));
  TRY_ASSIGN(rule.insecure, table.boolean("insecure"));
  TRY_ASSIGN(rule.blocked, table.boolean("blocked"));
  TRY_ASSIGN(const bool digest_only, table.boolean("mirror-by-digest-only"));
  if (!table.has("mirror")) return rule;
  const toml::array* mirrors = table.node("mirror")->as_array();
  if (mirrors == nullptr) return fail(table.wrong("mirror", "tables, written [[registry.mirror]]"));
  for (const toml::node& entry : *mirrors) {
    if (!entry.is_table()) return fail(table.wrong("mirror", "tables, written [[registry.mirror]]"));
    TRY_ASSIGN(RegistryMirror mirror, read_mirror(Table(*entry.as_table(), file), digest_only, unknown));
    rule.mirrors.push_back(std::move(mirror));
  }
  return rule;
}

}  // namespace

std::string normalized_place(std::string_view place) {
  constexpr uint64_t kUsualPort = 443;
  const std::string_view authority = place.substr(0, place.find('/'));
  std::string host = to_lower(authority), port;
  if (const size_t colon = host.rfind(':'); colon != std::string::npos && host.find(']', colon) == std::string::npos) {
    port = host.substr(colon);
    host.resize(colon);
    if (parse_unsigned(std::string_view(port).substr(1)) == kUsualPort) port.clear();
  }
  while (host.size() > 1 && host.ends_with('.')) host.pop_back();
  if (port.empty() && (host == "index.docker.io" || host == "registry-1.docker.io")) host = "docker.io";
  return host + port + std::string(place.substr(authority.size()));
}

Result<std::vector<RegistryRule>> read_registry_tables(const toml::node& tables, const std::string& file,
                                                       UnknownKeys unknown) {
  const std::string line = file + ":" + std::to_string(tables.source().begin.line);
  if (!tables.is_array())
    return fail(Error(ErrorKind::usage, line + ": registry must be tables, written [[registry]]")
                    .with_code(ErrorCode::site_config));
  std::vector<RegistryRule> rules;
  for (const toml::node& entry : *tables.as_array()) {
    if (!entry.is_table())
      return fail(Error(ErrorKind::usage, line + ": registry must be tables, written [[registry]]")
                      .with_code(ErrorCode::site_config));
    TRY_ASSIGN(RegistryRule rule, read_rule(Table(*entry.as_table(), file), file, unknown));
    const auto same = std::find_if(rules.begin(), rules.end(), [&](const auto& r) { return r.prefix == rule.prefix; });
    if (same != rules.end() && unknown == UnknownKeys::ignored) continue;  // as containers/image does: the first counts
    if (same != rules.end())
      return fail(Error(ErrorKind::usage,
                        rule.where + ": a second table for \"" + rule.prefix + "\", the first one is at " + same->where)
                      .with_code(ErrorCode::site_config));
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace situla
