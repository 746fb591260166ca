#include "hooks/import/certificates.hpp"

#include <algorithm>
#include <vector>

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
                    .with_hint("name a file that holds the registry's CA alone"));
  anchors.pem += pem;
  if (!anchors.pem.ends_with('\n')) anchors.pem += '\n';
  return {};
}

}  // namespace

Result<TrustAnchors> read_trust_anchors(const std::string& file, const std::string& directory) {
  TrustAnchors anchors;
  if (!file.empty()) {
    const std::string where = "read the CA certificates SSL_CERT_FILE=" + printable(file);
    auto text = read_file(file, kMaxBytes);
    if (!text) return fail(std::move(text).error().with_context(where));
    TRY(add(anchors, *text, where));
  }
  if (directory.empty()) return anchors;
  anchors.with_nodes = file.empty();
  auto names = list_directory(directory).value_or(std::vector<std::string>());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!is_hash_name(name)) continue;
    if (const auto text = read_file(directory + "/" + name, kMaxBytes))
      TRY(add(anchors, *text, "read the CA certificates SSL_CERT_DIR=" + printable(directory)));
  }
  if (anchors.pem.empty()) anchors.with_nodes = false;
  return anchors;
}

}  // namespace situla
