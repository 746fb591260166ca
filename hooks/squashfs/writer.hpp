// How do files and a tree become a squashfs file? Blocks are compressed as content arrives, metadata come at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/squashfs/donor.hpp"
#include "hooks/squashfs/file_owners.hpp"
#include "hooks/squashfs/root_tree.hpp"
#include "hooks/squashfs/squash_options.hpp"
#include "hooks/squashfs/trace.hpp"

namespace situla {

/// Whether an extended attribute is an image's to set. overlay's own would make names disappear under our overlay; an
/// SELinux label belongs to the host's policy, and umoci drops it too.
bool belongs_in_image(std::string_view attribute);

/// Content first, one file at a time, then finish(). The same calls give the same bytes, whatever the number of
/// threads.
class SquashfsWriter {
 public:
  /// fd: an empty file, open for reading and writing, not owned. `where` names it in errors.
  /// trace: told of the threads that compress, and of what is written; may be null.
  static Result<std::unique_ptr<SquashfsWriter>> create(int fd, const std::string& where, const SquashOptions& options,
                                                        Trace* trace = nullptr);
  SquashfsWriter(const SquashfsWriter&) = delete;
  SquashfsWriter& operator=(const SquashfsWriter&) = delete;
  ~SquashfsWriter();

  /// Number to be put into LayerEntry::data.
  Result<uint32_t> begin_file(uint64_t size);
  Result<void> append(std::string_view bytes);
  Result<void> end_file();
  /// Forgets what it keeps to find equal small files. Files may follow; those before count as different from them.
  Result<void> forget_duplicates();
  /// Takes files over from another squashfs file, which fits(): whole blocks are copied as they are stored, and so are
  /// fragments of which at least half is taken; small files in other fragments are packed anew. One number for each
  /// file, as of begin_file(). The donor must live as long as the writer.
  Result<std::vector<uint32_t>> adopt(const SquashfsDonor& donor, std::span<const StoredFile> files);
  /// Content at a place of a donor that will lie at the same place of this file: for share(), before anything else is
  /// written. A number as of begin_file().
  Result<uint32_t> refer(const StoredFile& file);
  /// Takes over all blocks and fragments of a donor that fits(), at the same places. Where the file system can, the two
  /// files then share their storage, and nothing is copied. Before anything else is written. copied: told of bytes.
  Result<void> share(const SquashfsDonor& donor, const std::function<void(uint64_t)>& copied);
  /// Where the content of a file lies. After finish() only, or for what refer() named.
  [[nodiscard]] StoredFile stored(uint32_t data) const;
  [[nodiscard]] Result<StoredFragment> fragment(uint32_t index) const;
  /// Number to be put into LayerEntry::xattrs. Names that squashfs cannot hold are left out; kNone if nothing remains.
  Result<uint32_t> add_xattrs(const std::vector<std::pair<std::string, std::string>>& xattrs);
  /// Writes the metadata; the file is then complete and padded to 4 KiB, but not synced. Returns its size in bytes.
  /// meter: what the tables take until they are written is taken from it; may be null.
  Result<uint64_t> finish(const RootTree& tree, ImportMeter* meter = nullptr, const FileOwners& owners = {});

 private:
  struct State;
  explicit SquashfsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace situla
