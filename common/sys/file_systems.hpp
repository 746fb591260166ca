// What kind of file system is a path on, and do several nodes share it?
#pragma once

#include <cstdint>
#include <string>

namespace situla {

enum class FileSystemKind { local, memory, network, layers };

/// One that statfs(2) tells.
struct FileSystem {
  int64_t magic;
  const char* name;
  FileSystemKind kind;
};
/// Null for one that is not known.
const FileSystem* file_system_of(const std::string& path);

/// The path itself, or the nearest directory above that is there.
std::string existing(const std::string& path);

/// What the mount table says of the mount that a path, or the nearest directory above that is there, is on.
struct MountedFrom {
  std::string type;    ///< "nfs4", "fuse.glusterfs"; empty: nobody can say
  std::string source;  ///< "server:/export", "/dev/sda1"
  FileSystemKind kind = FileSystemKind::local;
};
MountedFrom mounted_from(const std::string& path);

/// Whether the two paths, or the nearest directories above that are there, are on one file system.
bool share_file_system(const std::string& one, const std::string& other);

/// Whether a lease on a file (fcntl(2), F_SETLEASE) tells who has it open on any node that has the file system: one of
/// this node alone, or one whose server takes leases back (NFS 4, SMB). Elsewhere it is this kernel's own, which knows
/// of no other node.
bool leases_reach_all_nodes(int fd);
/// Whether a server decides on leases: that one is refused (EAGAIN) may mean that it gives none here, without a
/// delegation (NFS 4) or an oplock (SMB), and says nothing of who has the file open.
bool is_server_asked_for_leases(int fd);
bool leases_reach_all_nodes(const MountedFrom& place);

}  // namespace situla
