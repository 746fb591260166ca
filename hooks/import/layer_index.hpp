// What did a layer consist of, and where does the content of its files lie now? So that it need not be fetched again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "common/base/codec.hpp"
#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/squashfs/stored_file.hpp"
#include "hooks/squashfs/tar_entry.hpp"

namespace situla {

/// The file as it was when the index was written: a hint that it has been replaced meanwhile, and no proof that it has
/// not. What is taken from it is checked.
struct FileIdentity {
  uint64_t inode = 0, size = 0;
  uint64_t seconds = 0, nanoseconds = 0;  ///< of its modification

  static Result<FileIdentity> of(int fd);
  static auto fields(auto& file) { return std::tie(file.inode, file.size, file.seconds, file.nanoseconds); }
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// What stands in front of the entries.
struct LayerIndexHead {
  Digest layer;
  std::string donor;  ///< name of the squashfs file
  FileIdentity seen;
  SealKey key{};              ///< of the squashfs file; a secret
  uint64_t stored_bytes = 0;  ///< of files whose content the donor holds

  static auto fields(auto& head) { return std::tie(head.layer, head.donor, head.seen, head.key, head.stored_bytes); }
};

/// One entry: what the tar reader said, and the place of a file's content if the donor holds it.
struct IndexedEntry {
  TarEntry entry;  ///< path cleaned; only the attributes that are kept
  bool stored = false;
  StoredFile content;
};

/// Writes an index: a head, entries in the order of the layer, and a digest of all that. In pieces, for a million
/// entries.
class LayerIndexWriter {
 public:
  using Sink = std::function<Result<void>(std::string_view)>;
  LayerIndexWriter(const LayerIndexHead& head, Sink sink);
  Result<void> add(const IndexedEntry& entry);
  Result<void> finish();

 private:
  Result<void> flush();
  Sink sink_;
  Encoder out_;
  size_t waiting_ = 0;  ///< entries
  std::string directory_;
  std::unordered_set<uint32_t> fragments_;  ///< whose seals are written
  Sha256 hash_;
};

/// Reads what a LayerIndexWriter wrote.
class LayerIndex {
 public:
  /// ErrorKind::corrupt for what is damaged, or of another version.
  LayerIndex() = default;  ///< of nothing
  /// Of one index, and of all that one import reads, bytes; layers of a million files have 48 MiB. What is beyond is
  /// fetched.
  static constexpr size_t kMostInMemory = size_t{64} << 20U;
  static Result<LayerIndex> parse(std::string bytes);
  static Result<LayerIndex> read(const std::string& path);
  [[nodiscard]] size_t size() const { return bytes_.size(); }

  [[nodiscard]] const LayerIndexHead& head() const { return head_; }
  /// From the first entry to the last.
  Result<void> for_each(const std::function<Result<void>(IndexedEntry&)>& call) const;

 private:
  std::string bytes_;
  size_t entries_begin_ = 0, entries_end_ = 0;
  LayerIndexHead head_;
};

}  // namespace situla
