// What does libsquashfs write to, and with which compressors? Part of the adapter; only squashfs_*.cpp includes it.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <sqfs/compressor.h>
#include <sqfs/error.h>
#include <sqfs/io.h>

#include "common/sys/process/process.hpp"
#include "hooks/squashfs/squash_options.hpp"
#include "hooks/squashfs/trace.hpp"

namespace situla {

template <typename T>
struct Destroy {
  void operator()(T* object) const { sqfs_destroy(object); }
};
/// Objects of libsquashfs.
template <typename T>
using Owned = std::unique_ptr<T, Destroy<T>>;

/// In the order of SquashOptions::Compressor.
constexpr std::array<SQFS_COMPRESSOR, SquashOptions::kCompressors> kCompressorIds = {
    SQFS_COMP_GZIP, SQFS_COMP_LZO, SQFS_COMP_LZ4, SQFS_COMP_XZ, SQFS_COMP_ZSTD};
inline SQFS_COMPRESSOR compressor_id(SquashOptions::Compressor compressor) {
  return kCompressorIds.at(static_cast<size_t>(compressor));
}

/// libsquashfs takes contents for equal by a checksum of 32 bits that anybody can meet, and then compares with all that
/// have it: a thousand small files that were made so would each read all blocks of small files. Of an honest image
/// every content is compared once.
struct CompareBudget {
  static constexpr sqfs_u64 kFree = sqfs_u64{256} << 20U;
  static constexpr sqfs_u64 kPiece = 4096;  ///< what one call costs at least, and libsquashfs compares at a time
  sqfs_u64 left = kFree;
  bool spent = false;

  void add_file(sqfs_u64 block_bytes) { left += 2 * block_bytes + kPiece; }  // one block of small files
  void add_content(sqfs_u64 bytes) { left += 5 * bytes; }                    // both of it, in pieces
  [[nodiscard]] bool take(sqfs_u64 bytes) {
    spent = spent || left < bytes + kPiece;
    left -= spent ? 0 : bytes + kPiece;
    return !spent;
  }
};

/// sqfs_file_t upon a descriptor that somebody else owns. Remembers the errno that libsquashfs turns into "I/O error".
struct DescriptorFile {
  sqfs_file_t base{};
  int fd = -1;
  sqfs_u64 size = 0;
  sqfs_u64 flushed = 0;
  int errnum = 0;
  Trace* trace = nullptr;
  CompareBudget comparing;
  const std::function<bool()>* make_room = nullptr;  ///< SquashOptions::make_room

  static DescriptorFile& from(sqfs_file_t* file) { return *reinterpret_cast<DescriptorFile*>(file); }

  static int read_at(sqfs_file_t* file, sqfs_u64 offset, void* buffer, size_t size) {
    DescriptorFile& self = from(file);
    auto* place = static_cast<char*>(buffer);
    while (size > 0) {
      const ssize_t count = pread(self.fd, place, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) self.errnum = errno;
      if (count <= 0) return count == 0 ? SQFS_ERROR_OUT_OF_BOUNDS : SQFS_ERROR_IO;
      place += count;
      offset += static_cast<sqfs_u64>(count);
      size -= static_cast<size_t>(count);
    }
    return 0;
  }

  /// What libsquashfs itself reads is what it has written and compares. It is told of no error, not even that this was
  /// too much: libsquashfs 1.2 frees twice what it has in hand then. The writer fails for it at the end of the call.
  static int read_to_compare(sqfs_file_t* file, sqfs_u64 offset, void* buffer, size_t size) {
    DescriptorFile& self = from(file);
    if (self.comparing.take(size) && read_at(file, offset, buffer, size) == 0) return 0;
    if (self.errnum == 0 && !self.comparing.spent) self.errnum = EIO;
    std::memset(buffer, 0, size);
    return 0;
  }

  static int write_at(sqfs_file_t* file, sqfs_u64 offset, const void* buffer, size_t size) {
    DescriptorFile& self = from(file);
    const Trace::Time begin = self.trace == nullptr ? Trace::Time() : Trace::Clock::now();
    const auto* place = static_cast<const char*>(buffer);
    while (size > 0) {
      const ssize_t count = pwrite(self.fd, place, size, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        self.errnum = errno;
        if (self.makes_room()) continue;
        return SQFS_ERROR_IO;
      }
      place += count;
      offset += static_cast<sqfs_u64>(count);
      size -= static_cast<size_t>(count);
    }
    self.size = std::max(self.size, offset);
    self.write_behind();
    if (self.trace != nullptr) self.trace->add_to_row("write", "write", begin, Trace::Clock::now());
    return 0;
  }

  /// After an error in errnum: it is over when somebody makes room.
  [[nodiscard]] bool makes_room() {
    if ((errnum != ENOSPC && errnum != EDQUOT) || make_room == nullptr || !*make_room || !(*make_room)()) return false;
    errnum = 0;
    return true;
  }

  static constexpr sqfs_u64 kWriteBehind = sqfs_u64{8} << 20U;

  /// The disk works while the processors compress, so that the fsync at the end has little left to do.
  void write_behind() {
    if (size < flushed + kWriteBehind) return;
    sync_file_range(fd, static_cast<off_t>(flushed), static_cast<off_t>(size - flushed), SYNC_FILE_RANGE_WRITE);
    flushed = size;
  }

  static sqfs_u64 get_size(const sqfs_file_t* file) { return reinterpret_cast<const DescriptorFile*>(file)->size; }

  static int truncate(sqfs_file_t* file, sqfs_u64 size) {
    DescriptorFile& self = from(file);
    if (ftruncate(self.fd, static_cast<off_t>(size)) != 0) {
      self.errnum = errno;
      return SQFS_ERROR_IO;
    }
    self.size = size;
    self.flushed = std::min(self.flushed, size);
    return 0;
  }

  static void destroy(sqfs_object_t*) {}

  explicit DescriptorFile(int descriptor) : fd(descriptor) {
    base.base.destroy = destroy;
    base.read_at = read_to_compare;
    base.write_at = write_at;
    base.get_size = get_size;
    base.truncate = truncate;
  }
};

/// sqfs_file_t of blocks that wait for their place in the file. libsquashfs' own way of keeping them takes the size of
/// an uncompressed block for each.
struct WaitingBlocks {
  sqfs_file_t base{};
  std::vector<std::string> blocks;
  sqfs_u64 size = 0;

  static WaitingBlocks& from(sqfs_file_t* file) { return *reinterpret_cast<WaitingBlocks*>(file); }

  WaitingBlocks() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.read_at = [](sqfs_file_t*, sqfs_u64, void*, size_t) -> int { return SQFS_ERROR_UNSUPPORTED; };
    base.truncate = [](sqfs_file_t*, sqfs_u64) -> int { return SQFS_ERROR_UNSUPPORTED; };
    base.get_size = [](const sqfs_file_t* file) { return reinterpret_cast<const WaitingBlocks*>(file)->size; };
    base.write_at = [](sqfs_file_t* file, sqfs_u64 offset, const void* bytes, size_t count) -> int {
      WaitingBlocks& self = from(file);
      if (offset != self.size) return SQFS_ERROR_OUT_OF_BOUNDS;
      self.blocks.emplace_back(static_cast<const char*>(bytes), count);
      self.size += count;
      return 0;
    };
  }

  /// To the end of a file, in large pieces.
  int append_to(DescriptorFile& file) const {
    std::string piece;
    for (size_t i = 0; i < blocks.size(); ++i) {
      piece += blocks[i];
      if (piece.size() < kPiece && i + 1 < blocks.size()) continue;
      const int code = DescriptorFile::write_at(&file.base, file.size, piece.data(), piece.size());
      if (code != 0) return code;
      piece.clear();
    }
    return 0;
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 20U;
};

/// A compressor that leaves everything as it is, for -noI and -noX.
struct StoringCompressor {
  sqfs_compressor_t base{};
  StoringCompressor() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.do_block = [](sqfs_compressor_t*, const sqfs_u8*, sqfs_u32, sqfs_u8*, sqfs_u32) -> sqfs_s32 { return 0; };
  }
};

/// The compressor of the threads that compress content: libsquashfs copies it for each of them.
struct WorkerCompressor {
  sqfs_compressor_t base{};
  sqfs_compressor_t* inner;  ///< a copy owns it
  bool is_copy = false, begun = false;
  Trace* trace;  ///< told how long each block takes; may be null

  static WorkerCompressor& from(void* object) { return *static_cast<WorkerCompressor*>(object); }

  WorkerCompressor(sqfs_compressor_t* real, Trace* told) : inner(real), trace(told) {
    base.base.copy = [](const sqfs_object_t* object) -> sqfs_object_t* {
      const auto* self = reinterpret_cast<const WorkerCompressor*>(object);
      auto* copied = static_cast<sqfs_compressor_t*>(sqfs_copy(self->inner));
      if (copied == nullptr) return nullptr;
      auto* copy = new WorkerCompressor(copied, self->trace);
      copy->is_copy = true;
      return &copy->base.base;
    };
    base.base.destroy = [](sqfs_object_t* object) {
      WorkerCompressor& self = from(object);
      if (!self.is_copy) return;
      sqfs_destroy(self.inner);
      delete &self;
    };
    base.get_configuration = [](const sqfs_compressor_t* object, sqfs_compressor_config_t* config) {
      const sqfs_compressor_t* wrapped = reinterpret_cast<const WorkerCompressor*>(object)->inner;
      wrapped->get_configuration(wrapped, config);
    };
    base.write_options = [](sqfs_compressor_t* object, sqfs_file_t* file) {
      return from(object).inner->write_options(from(object).inner, file);
    };
    base.read_options = [](sqfs_compressor_t* object, sqfs_file_t* file) {
      return from(object).inner->read_options(from(object).inner, file);
    };
    base.do_block = [](sqfs_compressor_t* object, const sqfs_u8* in, sqfs_u32 size, sqfs_u8* out, sqfs_u32 room) {
      WorkerCompressor& self = from(object);
      if (self.is_copy && !std::exchange(self.begun, true)) self.begin_thread();
      const TraceSpan span(self.trace, "compress block");
      return self.inner->do_block(self.inner, in, size, out, room);
    };
  }

 private:
  /// Whoever inflates and reads comes first: a block that waits is work for later, a reader that waits is time lost.
  static constexpr int kNicer = 10;
  void begin_thread() const {
    if (trace != nullptr) trace->name_thread("compress");
    static_cast<void>(give_way(kNicer));  // the same bytes come out without it
  }
};

/// Decompresses blocks of small files to compare with them. Of errors as DescriptorFile::read_to_compare().
struct ComparingDecompressor {
  sqfs_compressor_t base{};
  sqfs_compressor_t* inner = nullptr;
  DescriptorFile* file = nullptr;
  ComparingDecompressor() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.do_block = [](sqfs_compressor_t* object, const sqfs_u8* in, sqfs_u32 size, sqfs_u8* out,
                       sqfs_u32 room) -> sqfs_s32 {
      auto* self = reinterpret_cast<ComparingDecompressor*>(object);
      DescriptorFile& read = *self->file;
      const sqfs_s32 result = read.comparing.take(room) ? self->inner->do_block(self->inner, in, size, out, room) : 0;
      if (result > 0) return result;
      if (read.errnum == 0 && !read.comparing.spent) read.errnum = EIO;
      std::memset(out, 0, room);
      return static_cast<sqfs_s32>(room);
    };
  }
};

/// Metadata blocks for which compressing gains nothing are stored as they are. libsquashfs 1.2's lz4 keeps the larger
/// form of very small blocks, which the kernel reads but unsquashfs does not.
struct MetadataCompressor {
  sqfs_compressor_t base{};
  sqfs_compressor_t* inner = nullptr;
  MetadataCompressor() {
    base.base.destroy = [](sqfs_object_t*) {};
    base.do_block = [](sqfs_compressor_t* self, const sqfs_u8* in, sqfs_u32 size, sqfs_u8* out,
                       sqfs_u32 room) -> sqfs_s32 {
      sqfs_compressor_t* real = reinterpret_cast<MetadataCompressor*>(self)->inner;
      const sqfs_s32 result = real->do_block(real, in, size, out, room);
      return result > 0 && static_cast<sqfs_u32>(result) >= size ? 0 : result;
    };
  }
};

}  // namespace situla
