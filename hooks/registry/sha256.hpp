// Which digest do these bytes have? libcrypto's sha256, which uses the SHA instructions of the processor.
#pragma once

#include <memory>
#include <string_view>

#include "common/spec/digest.hpp"

struct evp_md_ctx_st;

namespace situla {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  /// Once.
  Digest finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// sha256 of bytes.
Digest digest_of(std::string_view bytes);

}  // namespace situla
