#include "hooks/request/certificates.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20U;

/// "0123abcd.0": the only names that OpenSSL looks for.
bool is_hash_name(const std::string& name) {
  return name.size() >= 10 && name[8] == '.' && name.find_first_not_of("0123456789abcdef") == 8 &&
         name.find_first_not_of("0123456789", 9) == std::string::npos;
}

Result<void> add(TrustAnchors& anchors, std::string_view pem, const std::string& where) {
  if (anchors.pem.size() + pem.size() > kMaxBytes)
    return fail(Error(ErrorKind::usage, where + ": more than 1 MiB of certificates")
                    .with_code(ErrorCode::registry_certificate)
                    .with_hint("name a file that holds the registry's CA alone"));
  anchors.pem += pem;
  if (!anchors.pem.ends_with('\n')) anchors.pem += '\n';
  return {};
}

/// Of canonical ones. The DER of a certificate begins with a SEQUENCE, and so its base64 with this letter. What is none
/// would be left out later, and the registry's certificate be called unknown.
bool all_are_certificates(std::string_view pem) {
  constexpr std::string_view kFirst = "-----BEGIN CERTIFICATE-----\nM", kAny = "-----BEGIN CERTIFICATE-----\n";
  for (size_t at = pem.find(kAny); at != std::string_view::npos; at = pem.find(kAny, at + 1))
    if (!pem.substr(at).starts_with(kFirst)) return false;
  return true;
}

/// `where` names what holds them.
Result<std::string> made_canonical(std::string_view text, const std::string& where) {
  auto pem = canonical_certificates(text);
  if (pem && all_are_certificates(*pem)) return *std::move(pem);
  return fail(Error(ErrorKind::corrupt, where + ": one of them is damaged")
                  .with_code(ErrorCode::registry_certificate)
                  .with_hint("openssl x509 -in FILE -noout -text shows what it is"));
}

/// Whoever names a file means it to count, whatever a directory has beside it.
Result<std::string> read_certificates(const std::string& file) {
  const std::string where = "read the CA certificates SSL_CERT_FILE=" + printable(file);
  auto text = read_file(file, kMaxBytes);
  if (!text) return fail(std::move(text).error().with_context(where).with_code(ErrorCode::registry_certificate));
  TRY_ASSIGN(const std::string pem, made_canonical(*text, where));
  if (pem.empty())
    return fail(Error(ErrorKind::corrupt, where + ": there is none")
                    .with_code(ErrorCode::registry_certificate)
                    .with_hint("in PEM form they begin with -----BEGIN CERTIFICATE-----"));
  return *std::move(text);
}

}  // namespace

Result<TrustAnchors> read_trust_anchors(const std::string& file, const std::string& directory) {
  TrustAnchors anchors;
  std::string names = "read the CA certificates";
  if (!file.empty()) {
    names += " SSL_CERT_FILE=" + printable(file);
    TRY_ASSIGN(const std::string text, read_certificates(file));
    TRY(add(anchors, text, names));
  }
  if (!directory.empty()) {
    anchors.with_nodes = file.empty();
    names += " SSL_CERT_DIR=" + printable(directory);
    auto entries = list_directory(directory).value_or(std::vector<std::string>());
    std::sort(entries.begin(), entries.end());
    for (const std::string& name : entries) {
      if (!is_hash_name(name)) continue;
      if (const auto text = read_file(directory + "/" + name, kMaxBytes)) TRY(add(anchors, *text, names));
    }
  }
  TRY_ASSIGN(anchors.pem, made_canonical(anchors.pem, names));
  if (anchors.pem.empty()) anchors.with_nodes = false;
  return anchors;
}

std::optional<std::string> canonical_certificates(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----", kEnd = "-----END CERTIFICATE-----";
  constexpr size_t kLine = 64;
  std::set<std::string> blocks;
  for (size_t begin = pem.find(kBegin); begin != std::string_view::npos; begin = pem.find(kBegin)) {
    pem.remove_prefix(begin + kBegin.size());
    const size_t size = pem.find(kEnd);
    if (size == std::string_view::npos) return std::nullopt;
    std::string digits;
    for (const char c : pem.substr(0, size))
      if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) digits += c;
    if (digits.empty() || !decode_base64(digits)) return std::nullopt;
    blocks.insert(std::move(digits));
    pem.remove_prefix(size + kEnd.size());
  }
  std::string canonical;
  for (const std::string& digits : blocks) {
    canonical += std::string(kBegin) + "\n";
    for (size_t i = 0; i < digits.size(); i += kLine) canonical += digits.substr(i, kLine) + "\n";
    canonical += std::string(kEnd) + "\n";
  }
  return canonical;
}

}  // namespace situla
