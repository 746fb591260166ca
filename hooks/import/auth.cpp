#include "hooks/import/auth.hpp"

#include <array>

#include "common/base/text.hpp"

namespace situla {
namespace {

std::string percent_encode(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  static constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string encoded;
  for (const char c : text) {
    if (kPlain.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4U];
    encoded += kDigits[byte & 15U];
  }
  return encoded;
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) {
      const bool present = i + k <= bytes.size();
      text += present ? kAlphabet[(group >> (18 - 6 * k)) & 63U] : '=';
    }
  }
  return text;
}

/// Reads name=token or name="quoted \" string" pairs after a scheme.
Challenge parse_challenge(std::string_view value) {
  Challenge challenge;
  value = trim(value);
  const size_t end = value.find_first_of(" \t");
  challenge.scheme = to_lower(value.substr(0, end));
  value = end == std::string_view::npos ? std::string_view() : value.substr(end);
  while (true) {
    value = value.substr(std::min(value.find_first_not_of(" \t,"), value.size()));
    const size_t equals = value.find('=');
    if (equals == std::string_view::npos) return challenge;
    const std::string name = to_lower(trim(value.substr(0, equals)));
    value.remove_prefix(equals + 1);
    std::string text;
    if (value.starts_with('"')) {
      size_t i = 1;
      for (; i < value.size() && value[i] != '"'; ++i) {
        if (value[i] == '\\' && i + 1 < value.size()) ++i;
        text += value[i];
      }
      value.remove_prefix(std::min(i + 1, value.size()));
    } else {
      text = trim(value.substr(0, value.find(',')));
      value.remove_prefix(std::min(value.find(','), value.size()));
    }
    challenge.parameters.emplace(name, std::move(text));
  }
}

}  // namespace

std::optional<Challenge> choose_challenge(const std::vector<std::string>& values) {
  std::optional<Challenge> basic;
  for (const std::string& value : values) {
    Challenge challenge = parse_challenge(value);
    if (challenge.scheme == "bearer") return challenge;
    if (challenge.scheme == "basic" && !basic) basic = std::move(challenge);
  }
  return basic;
}

std::string basic_authorization(std::string_view login, std::string_view password) {
  std::string pair(login);
  pair += ':';
  pair += password;
  return "Basic " + base64(pair);
}

Result<std::string> token_url(const Challenge& challenge, std::string_view fallback_scope, std::string_view account,
                              bool allow_http) {
  const auto parameter = [&](const char* name) {
    const auto found = challenge.parameters.find(name);
    return found == challenge.parameters.end() ? std::string() : found->second;
  };
  const std::string realm = parameter("realm");
  if (!realm.starts_with("https://") && !(allow_http && realm.starts_with("http://")))
    return fail(ErrorKind::corrupt, "the registry names no usable token server ('" + printable(realm) + "')");
  std::string url = realm;
  char separator = realm.find('?') == std::string::npos ? '?' : '&';
  const auto add = [&](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    url += separator;
    url += std::string(name) + "=" + percent_encode(value);
    separator = '&';
  };
  add("service", parameter("service"));
  const std::string scope = parameter("scope");
  add("scope", scope.empty() ? fallback_scope : scope);
  add("account", account);
  return url;
}

std::string host_of_url(std::string_view url) {
  if (const size_t scheme = url.find("://"); scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const size_t at = url.rfind('@'); at != std::string_view::npos) url.remove_prefix(at + 1);
  if (url.starts_with('[')) return std::string(url.substr(1, url.find(']') - 1));
  return std::string(url.substr(0, url.find(':')));
}

}  // namespace situla
