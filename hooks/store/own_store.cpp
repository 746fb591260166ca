#include "hooks/store/own_store.hpp"

#include <unistd.h>

namespace situla {

Result<OwnStore> OwnStore::open(const EnrootConfig& config) {
  const std::string path = config.cache_path() + "/situla-store." + std::to_string(geteuid());
  auto directory = PrivateDirectory::open_or_make(path, "ENROOT_CACHE_PATH");
  if (!directory) return fail(std::move(directory).error().with_context("open your own image store"));
  return OwnStore(std::move(*directory));
}

Error OwnStore::shown(const Error& error) const {
  Error renamed(error.kind(), shown(error.message()));
  return error.hint().empty() ? renamed : std::move(renamed).with_hint(shown(error.hint()));
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
