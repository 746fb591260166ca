// A file system over a directory as several machines may see one: each process of this program is a machine. Locks hold
// nobody off, and what others changed is seen after some seconds (names that are not there included). As root:
//   lying_fs DIRECTORY MOUNT_POINT SECONDS [AHEAD [OPTIONS]]
// AHEAD: seconds that its server's clock is ahead. OPTIONS: of the mount, instead of those for everybody.
#define FUSE_USE_VERSION 31
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace {

std::string base;
double seconds = 0;
time_t ahead = 0;

std::string at(const char* path) {
  return base + path;
}
int answer(long result) {
  return result < 0 ? -errno : 0;
}
/// This process is root, and the file the caller's.
int give(const std::string& path) {
  const fuse_context* caller = fuse_get_context();
  return answer(lchown(path.c_str(), caller->uid, caller->gid));
}

void* begin(fuse_conn_info*, fuse_config* config) {
  config->use_ino = 1;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = seconds;
  config->auto_cache = 1;
  return nullptr;
}

fuse_operations operations() {
  fuse_operations all{};
  all.init = begin;
  all.getattr = [](const char* path, struct stat* status, fuse_file_info* file) {
    const int code = file != nullptr ? fstat(static_cast<int>(file->fh), status) : lstat(at(path).c_str(), status);
    status->st_mtim.tv_sec += ahead;
    return answer(code);
  };
  all.readlink = [](const char* path, char* target, size_t room) {
    const ssize_t size = readlink(at(path).c_str(), target, room - 1);
    if (size >= 0) target[size] = '\0';
    return answer(size);
  };
  all.mkdir = [](const char* path, mode_t mode) {
    return mkdir(at(path).c_str(), mode) != 0 ? -errno : give(at(path));
  };
  all.unlink = [](const char* path) { return answer(unlink(at(path).c_str())); };
  all.rmdir = [](const char* path) { return answer(rmdir(at(path).c_str())); };
  all.symlink = [](const char* target, const char* path) {
    return symlink(target, at(path).c_str()) != 0 ? -errno : give(at(path));
  };
  all.rename = [](const char* from, const char* to, unsigned flags) {
    return answer(renameat2(AT_FDCWD, at(from).c_str(), AT_FDCWD, at(to).c_str(), flags));
  };
  all.link = [](const char* from, const char* to) { return answer(link(at(from).c_str(), at(to).c_str())); };
  all.chmod = [](const char* path, mode_t mode, fuse_file_info*) { return answer(chmod(at(path).c_str(), mode)); };
  all.chown = [](const char* path, uid_t uid, gid_t gid, fuse_file_info*) {
    return answer(lchown(at(path).c_str(), uid, gid));
  };
  all.truncate = [](const char* path, off_t size, fuse_file_info* file) {
    return answer(file != nullptr ? ftruncate(static_cast<int>(file->fh), size) : truncate(at(path).c_str(), size));
  };
  all.utimens = [](const char* path, const timespec times[2], fuse_file_info* file) {
    return answer(file != nullptr ? futimens(static_cast<int>(file->fh), times)
                                  : utimensat(AT_FDCWD, at(path).c_str(), times, AT_SYMLINK_NOFOLLOW));
  };
  all.open = [](const char* path, fuse_file_info* file) {
    const int fd = open(at(path).c_str(), file->flags & ~(O_CREAT | O_EXCL));
    file->fh = static_cast<uint64_t>(fd);
    return answer(fd);
  };
  all.create = [](const char* path, mode_t mode, fuse_file_info* file) {
    const int fd = open(at(path).c_str(), file->flags | O_CREAT, mode);
    file->fh = static_cast<uint64_t>(fd);
    return fd < 0 ? -errno : give(at(path));
  };
  all.read = [](const char*, char* bytes, size_t size, off_t offset, fuse_file_info* file) {
    const ssize_t count = pread(static_cast<int>(file->fh), bytes, size, offset);
    return count < 0 ? -errno : static_cast<int>(count);
  };
  all.write = [](const char*, const char* bytes, size_t size, off_t offset, fuse_file_info* file) {
    const ssize_t count = pwrite(static_cast<int>(file->fh), bytes, size, offset);
    return count < 0 ? -errno : static_cast<int>(count);
  };
  all.release = [](const char*, fuse_file_info* file) { return answer(close(static_cast<int>(file->fh))); };
  all.fsync = [](const char*, int, fuse_file_info* file) { return answer(fsync(static_cast<int>(file->fh))); };
  all.statfs = [](const char* path, struct statvfs* status) { return answer(statvfs(at(path).c_str(), status)); };
  all.readdir = [](const char* path, void* list, fuse_fill_dir_t add, off_t, fuse_file_info*, fuse_readdir_flags) {
    DIR* directory = opendir(at(path).c_str());
    if (directory == nullptr) return -errno;
    while (const dirent* entry = readdir(directory))
      add(list, entry->d_name, nullptr, 0, static_cast<fuse_fill_dir_flags>(0));
    closedir(directory);
    return 0;
  };
  // The lie.
  all.flock = [](const char*, fuse_file_info*, int) { return 0; };
  return all;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4 || count > 6) return 2;
  base = words[1];
  seconds = std::atof(words[3]);
  if (count > 4) ahead = std::atol(words[4]);
  umask(0);
  const fuse_operations all = operations();
  std::string program = words[0], mount = words[2], option = "-o",
              options =
                  std::string(count > 5 ? words[5] : "allow_other,default_permissions") + ",fsname=lying,dev,suid";
  char* arguments[] = {program.data(), mount.data(), option.data(), options.data(), nullptr};
  return fuse_main(4, arguments, &all, nullptr);
}
