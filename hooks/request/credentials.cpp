#include "hooks/request/credentials.hpp"

#include <chrono>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/request/user_command.hpp"

namespace situla {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20U;
constexpr std::chrono::seconds kExpandTime{60};

/// Words of a netrc file: blanks separate, double quotes and $( ) hold blanks together, '#' at the start of a line is a
/// comment.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::optional<std::string> next() {
    skip_blanks();
    if (rest_.empty()) return std::nullopt;
    if (rest_.front() == '"') return quoted();
    if (rest_.starts_with("$(")) return substitution();
    return take(rest_.find_first_of(" \t\r\n"));
  }
  /// A macro definition ends with an empty line.
  void skip_macro() {
    const size_t end = rest_.find("\n\n");
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end);
    line_start_ = true;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\n') {
        line_start_ = true;
      } else if (c == '#' && line_start_) {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
        continue;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        break;
      }
      rest_.remove_prefix(1);
    }
    line_start_ = false;
  }
  std::string take(size_t size) {
    std::string word(rest_.substr(0, size));
    rest_.remove_prefix(word.size());
    return word;
  }
  std::string quoted() {
    std::string word;
    size_t i = 1;
    for (; i < rest_.size() && rest_[i] != '"'; ++i) {
      if (rest_[i] == '\\' && i + 1 < rest_.size()) ++i;
      word += rest_[i];
    }
    rest_.remove_prefix(std::min(i + 1, rest_.size()));
    return word;
  }
  std::string substitution() {
    size_t depth = 0;
    size_t i = 1;
    for (; i < rest_.size() && rest_[i] != '\n'; ++i) {
      if (rest_[i] == '(') ++depth;
      if (rest_[i] == ')' && --depth == 0) break;
    }
    const size_t end = rest_.find_first_of(" \t\r\n", i);
    return take(end);
  }

  std::string_view rest_;
  bool line_start_ = true;
};

/// The program text is constant; the password, which may itself be a secret, comes through a descriptor.
constexpr const char* kExpander = R"(p=$(cat <&3); eval "printf '%s' \"$p\"")";

Result<std::string> expand_with_shell(const std::string& password, const Environment& environment) {
  Environment clean = environment;
  clean.unset("BASH_ENV");
  clean.unset("ENV");
  SpawnOptions options;
  const bool bash = access("/bin/bash", X_OK) == 0;
  options.program = bash ? "/bin/bash" : "/bin/sh";
  options.arguments = {bash ? "bash" : "sh", "-c", kExpander};
  options.environment = clean.strings();
  TRY_ASSIGN(CommandOutput output, run_for_output(std::move(options), password, 3, kExpandTime));
  if (!output.status.success()) return fail(ErrorKind::failure, "the command " + output.status.text());
  std::string value = std::move(output.text);
  while (value.ends_with('\n')) value.pop_back();
  if (value.empty()) return fail(ErrorKind::failure, "the result is empty");
  return value;
}

}  // namespace

const Credential* CredentialSet::find(std::string_view host, std::string_view login) const {
  for (const Credential& credential : credentials_)
    if (credential.scope == Credential::Scope::host && credential.host == host &&
        (login.empty() || credential.login == login))
      return &credential;
  return nullptr;
}

const Credential* CredentialSet::find_registry(std::string_view authority, std::string_view login) const {
  for (const Credential& credential : credentials_)
    if (credential.scope == Credential::Scope::registry && credential.host == authority &&
        (login.empty() || credential.login == login))
      return &credential;
  return nullptr;
}

Result<CredentialSet> parse_credentials(std::string_view text, const std::string& where, const PasswordExpander& expand,
                                        LogSink& log) {
  CredentialSet set;
  std::optional<Credential> open;
  const auto close = [&] {
    if (!open) return;
    Credential entry = *std::exchange(open, std::nullopt);
    if (entry.host.empty())
      return;  // "default" matches every host: a password for any registry is not meant by anybody.
    if (entry.password.starts_with('$')) {
      auto expanded = expand(entry.password);
      if (!expanded) {
        log.warning(where + ": ignoring the password of " + printable(entry.login) + " at " + printable(entry.host) +
                    ": " + expanded.error().message());
        return;
      }
      entry.password = std::move(*expanded);
    }
    set.add(std::move(entry));
  };
  Words words(text);
  while (const auto word = words.next()) {
    if (*word == "machine") {
      close();
      const auto host = words.next();
      if (!host) return fail(ErrorKind::usage, where + ": 'machine' without a host at the end");
      open = Credential{*host, {}, {}};
    } else if (*word == "default") {
      close();
      open = Credential{};
    } else if (*word == "macdef") {
      words.skip_macro();
    } else if (*word == "login" || *word == "password" || *word == "account") {
      auto value = words.next();
      if (!value || !open)
        return fail(ErrorKind::usage,
                    where + ": '" + *word + "' " + (value ? "before any 'machine'" : "without a value at the end"));
      if (*word == "login") open->login = std::move(*value);
      if (*word == "password") open->password = std::move(*value);
    } else {
      // Never the word itself: it may be a stray piece of a password.
      return fail(Error(ErrorKind::usage, where + ": a word that is none of machine, login, password")
                      .with_hint("a password with blanks goes in double quotes"));
    }
  }
  close();
  return set;
}

Result<CredentialSet> collect_credentials(const EnrootConfig& config, const Environment& environment, LogSink& log) {
  const std::string path = config.config_path() + "/.credentials";
  const auto text = read_file(path, kMaxFileBytes);
  if (!text) {
    if (text.error().kind() == ErrorKind::not_found || text.error().errnum() == ENOTDIR) return CredentialSet{};
    return fail(text.error());
  }
  return parse_credentials(
      *text, path, [&](const std::string& password) { return expand_with_shell(password, environment); }, log);
}

Result<std::vector<TokenServer>> parse_token_servers(std::string_view text) {
  std::vector<TokenServer> pairs;
  for (const std::string_view word : split_words(text)) {
    const auto parts = cut(word, '=');
    if (!parts || parts->first.empty() || parts->second.empty())
      return fail(Error(ErrorKind::usage, "ENROOT_TOKEN_SERVERS: '" + printable(word) + "' is not REGISTRY=TOKENSERVER")
                      .with_hint("for example registry.example.com=gitlab.example.com"));
    pairs.push_back({std::string(parts->first), std::string(parts->second)});
  }
  return pairs;
}

}  // namespace situla
