#include "hooks/store/origin_key.hpp"

#include "common/base/codec.hpp"
#include "hooks/registry/sha256.hpp"

namespace situla {

std::string origin_key(const Origin& origin) {
  constexpr size_t kDigits = 32;
  Encoder out;  // with lengths: no two origins run together into one text
  out.text("situla origin 1");
  out.text(origin.registry);
  out.text(origin.repository);
  return digest_of(out.take()).hex().substr(0, kDigits);
}

}  // namespace situla
