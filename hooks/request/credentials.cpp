#include "hooks/request/credentials.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include <sys/stat.h>
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
  explicit Words(std::string_view text) : text_(text), rest_(text) {}

  /// Where the word begins that was returned last: ":3"; the first line is 1.
  [[nodiscard]] std::string line() const { return ":" + std::to_string(line_); }

  std::optional<std::string> next() {
    skip_blanks();
    const size_t begin = text_.size() - rest_.size();
    line_ += static_cast<size_t>(std::count(text_.begin() + static_cast<ptrdiff_t>(begin_),
                                            text_.begin() + static_cast<ptrdiff_t>(begin), '\n'));
    begin_ = begin;
    if (rest_.empty()) return std::nullopt;
    if (rest_.front() == '"') return quoted();
    if (rest_.starts_with("$(")) return substitution();
    return take(rest_.find_first_of(" \t\r\n"));
  }
  void skip_line() { rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size())); }
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

  std::string_view text_, rest_;
  size_t begin_ = 0, line_ = 1;  ///< of the word that was returned last
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

/// The word itself is shown where it is letters only and near to one that is known: anything else may be a stray piece
/// of a password.
Error unknown_word(const std::string& where, const std::string& word) {
  const bool letters = std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  constexpr std::array<std::string_view, 5> kKnown = {"machine", "login", "password", "account", "default"};
  if (const auto near = closest(word, kKnown); near && letters)
    return Error(ErrorKind::usage, where + ": unknown word '" + printable(word) + "'")
        .with_code(ErrorCode::credentials)
        .with_hint("did you mean " + std::string(*near) + "?");
  return Error(ErrorKind::usage, where + ": a word that is none of machine, login, password")
      .with_code(ErrorCode::credentials)
      .with_hint(
          "a password with blanks goes in double quotes; a line that a shell writes into the file goes in single "
          "quotes, so that $oauthtoken stays as it is");
}

Result<CredentialSet> parse_credentials(std::string_view text, const std::string& file, const PasswordExpander& expand,
                                        LogSink& log) {
  CredentialSet set;
  std::optional<Credential> open;
  Words words(text);
  const auto close = [&] {
    if (!open) return;
    Credential entry = *std::exchange(open, std::nullopt);
    if (entry.host.empty())
      return;  // "default" matches every host: a password for any registry is not meant by anybody.
    if (entry.password.starts_with('$')) {
      auto expanded = expand(entry.password);
      if (!expanded) {
        log.warning(file + ": ignoring the password of " + printable(entry.login) + " at " + printable(entry.host) +
                    ": " + expanded.error().message());
        return;
      }
      entry.password = std::move(*expanded);
    }
    set.add(std::move(entry));
  };
  while (const auto word = words.next()) {
    if (*word == "machine") {
      close();
      const auto host = words.next();
      if (!host)
        return fail(Error(ErrorKind::usage, file + words.line() + ": 'machine' without a host at the end")
                        .with_code(ErrorCode::credentials));
      open = Credential{*host, {}, {}};
    } else if (*word == "default") {
      close();
      open = Credential{};
    } else if (*word == "macdef") {
      words.skip_macro();
    } else if (*word == "login" || *word == "password" || *word == "account") {
      auto value = words.next();
      if (!value || !open)
        return fail(Error(ErrorKind::usage, file + words.line() + ": '" + *word + "' " +
                                                (value ? "before any 'machine'" : "without a value at the end"))
                        .with_code(ErrorCode::credentials));
      if (*word == "login") open->login = std::move(*value);
      if (*word == "password") open->password = std::move(*value);
    } else if (word->starts_with('#')) {
      words.skip_line();  // a comment behind an entry, as curl has it
    } else {
      return fail(unknown_word(file + words.line(), *word));
    }
  }
  close();
  return set;
}

Result<CredentialSet> collect_credentials(const EnrootConfig& config, const Environment& environment, LogSink& log) {
  const std::string path = config.config_path() + "/.credentials";
  const auto text = read_file(path, kMaxFileBytes);
  if (!text) {
    const int errnum = text.error().errnum();
    if (text.error().kind() == ErrorKind::not_found || errnum == ENOTDIR) return CredentialSet{};
    // A home directory of somebody else's, or one for which the job has no ticket: images that everybody may have need
    // none of it.
    if (errnum == EACCES || errnum == EPERM || errnum == ENOKEY || errnum == EKEYEXPIRED) {
      log.warning(text.error().message() + ": asking without a login");
      return CredentialSet{};
    }
    return fail(Error(text.error()).with_code(ErrorCode::credentials));
  }
  // Where others can read it only, the doctor says so: many have such a file in a home directory that is closed.
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    log.warning(path + " can be written by other users: chmod 600 " + shell_quote(path));
  return parse_credentials(
      *text, path, [&](const std::string& password) { return expand_with_shell(password, environment); }, log);
}

Result<std::vector<TokenServer>> parse_token_servers(std::string_view text) {
  std::vector<TokenServer> pairs;
  for (const std::string_view word : split_words(text)) {
    const auto parts = cut(word, '=');
    if (!parts || parts->first.empty() || parts->second.empty())
      return fail(Error(ErrorKind::usage, "ENROOT_TOKEN_SERVERS: '" + printable(word) + "' is not REGISTRY=TOKENSERVER")
                      .with_code(ErrorCode::enroot_config)
                      .with_hint("for example registry.example.com=gitlab.example.com"));
    pairs.push_back({std::string(parts->first), std::string(parts->second)});
  }
  return pairs;
}

}  // namespace situla
