// Are these the blocks that were written? A message authentication code of what a squashfs file stores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/result.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/stored_file.hpp"

struct evp_cipher_ctx_st;

namespace situla {

/// Random, one for each squashfs file. Whoever has it can write blocks that pass for genuine: it lies in the layer
/// indexes, which nobody else reads.
Result<SealKey> new_seal_key();

/// GMAC (AES-256-GCM with nothing to encrypt): several times as fast as sha256, which many processors have no
/// instructions for. The nonce is the place in the file, so that nothing is sealed twice with the same one.
class BlockSeal final : public DonorCheck {
 public:
  explicit BlockSeal(const SealKey& key);
  void begin_blocks(uint64_t start, uint64_t bytes) override;
  void begin_fragment(uint32_t index, uint32_t size) override;
  void add(std::string_view bytes) override;
  [[nodiscard]] bool matches(const Seal& seal) override;
  Seal finish();

 private:
  void begin(uint8_t kind, uint64_t place, uint64_t size);
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

/// Seals what a file stores, by reading it. What several files share is read once.
class FileSealer {
 public:
  /// fd: open for reading; not owned.
  FileSealer(const SealKey& key, int fd) : seal_(key), fd_(fd) {}
  /// fragment: where file.fragment lies, if it has one.
  Result<void> seal(StoredFile& file, const StoredFragment& fragment);

 private:
  Result<Seal> read(uint64_t start, uint64_t bytes);
  BlockSeal seal_;
  int fd_;
  std::string buffer_;
  std::unordered_map<uint64_t, std::pair<uint64_t, Seal>> blocks_;  ///< by start: bytes, and their seal
  std::unordered_map<uint32_t, Seal> fragments_;
};

}  // namespace situla
