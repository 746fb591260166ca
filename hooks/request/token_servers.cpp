#include "hooks/request/token_servers.hpp"

#include "common/base/text.hpp"

namespace situla {

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
