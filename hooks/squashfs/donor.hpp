// Which compressed blocks of a finished squashfs file can another one take over as they are?
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "hooks/squashfs/squash_options.hpp"
#include "hooks/squashfs/stored_file.hpp"

namespace situla {

/// Is what is read from a donor what was written there? For those that others may have written to.
class DonorCheck {
 public:
  DonorCheck() = default;
  DonorCheck(const DonorCheck&) = delete;
  DonorCheck& operator=(const DonorCheck&) = delete;
  virtual ~DonorCheck() = default;
  /// Then the bytes, in pieces, then matches().
  virtual void begin_blocks(uint64_t start, uint64_t bytes) = 0;
  /// size: as in StoredFragment, which the donor itself says.
  virtual void begin_fragment(uint32_t index, uint32_t size) = 0;
  virtual void add(std::string_view bytes) = 0;
  [[nodiscard]] virtual bool matches(const Seal& seal) = 0;
};

/// A complete squashfs file, read by its descriptor: it may lose its name meanwhile.
class SquashfsDonor {
 public:
  /// ErrorKind::corrupt for what is no squashfs file. `where` names it in errors.
  static Result<std::unique_ptr<SquashfsDonor>> open(UniqueFd fd, const std::string& where);

  /// Nothing is taken that does not match.
  void check_with(std::unique_ptr<DonorCheck> check) { check_ = std::move(check); }
  [[nodiscard]] DonorCheck* check() const { return check_.get(); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] const std::string& where() const { return where_; }
  /// Whether blocks of a file written so can be read in one written with these options.
  [[nodiscard]] bool fits(const SquashOptions& options) const;
  /// These options with what has to be the same for that; nullopt when this libsquashfs cannot write it.
  [[nodiscard]] std::optional<SquashOptions> fitting(SquashOptions options) const;
  [[nodiscard]] Result<StoredFragment> fragment(uint32_t index) const;
  [[nodiscard]] uint32_t fragments() const { return static_cast<uint32_t>(fragments_.size()); }
  /// Blocks and fragments lie before this place, bytes from the start of the file.
  [[nodiscard]] uint64_t data_end() const { return data_end_; }
  /// Whether the compressor's options lie between superblock and blocks.
  [[nodiscard]] bool has_compressor_options() const { return has_options_; }
  /// Whether the blocks lie inside the file; what has been damaged is not to be copied.
  [[nodiscard]] bool contains(uint64_t start, uint64_t bytes) const;

 private:
  SquashfsDonor(UniqueFd fd, std::string where) : fd_(std::move(fd)), where_(std::move(where)) {}
  UniqueFd fd_;
  std::string where_;
  std::unique_ptr<DonorCheck> check_;  ///< null: the donor's bytes are believed
  uint32_t compressor_ = 0;            ///< squashfs's number
  bool has_options_ = false;
  uint32_t block_bytes_ = 0;
  uint64_t data_end_ = 0;  ///< where the inodes begin
  std::vector<StoredFragment> fragments_;
};

}  // namespace situla
