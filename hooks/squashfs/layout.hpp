// How do the bytes of a squashfs 4.0 file lie? Little endian, without padding (kernel documentation,
// filesystems/squashfs.rst).
#pragma once

#include <cstdint>

namespace situla::squashfs {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structures are read as they are");

constexpr uint32_t kMagic = 0x73717368;
constexpr uint32_t kMetadataBytes = 8192;
constexpr uint16_t kMetadataStored = 0x8000;  ///< of a metadata block's header: not compressed
constexpr uint32_t kDataStored = 1U << 24U;   ///< of a data block's size: not compressed
constexpr uint64_t kNoTable = 0xFFFFFFFFFFFFFFFF;
constexpr uint16_t kExternalValue = 0x0100;  ///< of an attribute's type: its value lies elsewhere

struct [[gnu::packed]] Superblock {
  uint32_t magic, inode_count, modification_time, block_bytes, fragment_count;
  uint16_t compressor, block_log, flags, id_count, major, minor;
  uint64_t root, bytes_used, id_table, attribute_table, inode_table, directory_table, fragment_table, export_table;
};
static_assert(sizeof(Superblock) == 96);

/// Who owns the files, in images of our own importer: block and row of the id table, in the file one after the other.
/// User and group have an entry each, both 0, in a block that is not compressed: with eight other bytes all files are
/// somebody else's.
struct [[gnu::packed]] OwnIdTable {
  uint16_t header;  ///< of the metadata block: kMetadataStored | 8
  uint32_t user, group;
  uint64_t block;  ///< where the header is
};
constexpr uint16_t kUserIndex = 0, kGroupIndex = 1, kIdCount = 2;

struct [[gnu::packed]] InodeHeader {
  uint16_t type, mode, owner, group;
  uint32_t modification_time, number;
};
struct [[gnu::packed]] DirectoryInode {
  uint32_t block, links;
  uint16_t size, offset;
  uint32_t parent;
};
struct [[gnu::packed]] LongDirectoryInode {
  uint32_t links, size, block, parent;
  uint16_t index_count, offset;
  uint32_t attributes;
};
struct [[gnu::packed]] FileInode {
  uint32_t start, fragment, fragment_offset, size;
};
struct [[gnu::packed]] LongFileInode {
  uint64_t start, size, sparse;
  uint32_t links, fragment, fragment_offset, attributes;
};
struct [[gnu::packed]] LinkInode {
  uint32_t links, size;
};
struct [[gnu::packed]] DeviceInode {
  uint32_t links, device;
};
struct [[gnu::packed]] IpcInode {
  uint32_t links;
};

struct [[gnu::packed]] DirectoryHeader {
  uint32_t count, block, number;
};
struct [[gnu::packed]] DirectoryEntry {
  uint16_t offset;
  int16_t number;
  uint16_t type, size;
};
struct [[gnu::packed]] FragmentEntry {
  uint64_t start;
  uint32_t size, unused;
};

struct [[gnu::packed]] AttributeTable {
  uint64_t start;
  uint32_t count, unused;
};
struct [[gnu::packed]] AttributeEntry {
  uint64_t position;
  uint32_t count, size;
};
struct [[gnu::packed]] AttributeKey {
  uint16_t type, size;
};

}  // namespace situla::squashfs
