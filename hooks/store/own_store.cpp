#include "hooks/store/own_store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla {

namespace {

constexpr const char* kSetting = "ENROOT_CACHE_PATH";

std::string path_in(const EnrootConfig& config) {
  return config.cache_path() + "/situla-store." + std::to_string(geteuid());
}

}  // namespace

Result<OwnStore> OwnStore::find(const EnrootConfig& config) {
  TRY_ASSIGN(PrivateDirectory directory, PrivateDirectory::open(path_in(config), kSetting));
  return OwnStore(std::move(directory));
}

Result<OwnStore> OwnStore::open(const EnrootConfig& config) {
  const std::string path = path_in(config);
  auto directory = PrivateDirectory::open_or_make(path, kSetting);
  if (directory) return OwnStore(std::move(*directory));
  Error error = std::move(directory).error();
  struct stat status {};
  // For steps the user's environment does not say where the cache is (COMPAT.md section 2).
  if (lstat(path.c_str(), &status) == 0 && status.st_uid != geteuid())
    error = Error(error.kind(), error.message())
                .with_code(ErrorCode::enroot_config)
                .with_hint("as root: rm -r " + shell_quote(path) + ", or another ENROOT_CACHE_PATH in enroot.conf");
  return fail(std::move(error).with_context("open your own image store"));
}

Error OwnStore::shown(const Error& error) const {
  SentError renamed = SentError::of(error);
  renamed.text = shown(renamed.text);
  renamed.hint = shown(renamed.hint);
  return renamed.error();
}

std::string OwnStore::shown(std::string_view text) const {
  const std::string held = path();
  std::string result;
  for (size_t at = text.find(held); at != text.npos; at = text.find(held)) {
    const size_t end = at + held.size();
    const bool other = end < text.size() && text[end] >= '0' && text[end] <= '9';  // "/proc/self/fd/71"
    result += text.substr(0, at);
    result += other ? held : directory_.path();
    text.remove_prefix(end);
  }
  return result + std::string(text);
}

}  // namespace situla
