// Who is this number? glibc's functions load the shared libraries of /etc/nsswitch.conf, which crashes a static program
// on a machine with another glibc. These take their place at link time and know /etc/passwd and /etc/group only; users
// of a directory service run bundles with their number and $HOME.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <grp.h>
#include <pwd.h>

namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

/// The first entry that is wanted, in the form of the *_r functions: 0 and null when there is none.
template <typename Entry, typename Read, typename Wanted>
int find(const char* path, Read read, Entry* entry, char* buffer, size_t size, Entry** found, Wanted wanted) {
  *found = nullptr;
  const File file(std::fopen(path, "re"));
  if (!file) return 0;
  Entry* next = nullptr;
  for (int code = 0; (code = read(file.get(), entry, buffer, size, &next)) == 0;) {
    if (!wanted(*entry)) continue;
    *found = entry;
    return 0;
  }
  return errno == ERANGE ? ERANGE : 0;
}

}  // namespace

extern "C" {

int getpwuid_r(uid_t uid, passwd* entry, char* buffer, size_t size, passwd** found) {
  return find("/etc/passwd", fgetpwent_r, entry, buffer, size, found,
              [uid](const passwd& user) { return user.pw_uid == uid; });
}

int getpwnam_r(const char* name, passwd* entry, char* buffer, size_t size, passwd** found) {
  return find("/etc/passwd", fgetpwent_r, entry, buffer, size, found,
              [name](const passwd& user) { return std::strcmp(user.pw_name, name) == 0; });
}

int getgrgid_r(gid_t gid, group* entry, char* buffer, size_t size, group** found) {
  return find("/etc/group", fgetgrent_r, entry, buffer, size, found,
              [gid](const group& one) { return one.gr_gid == gid; });
}

/// Nothing in a bundle takes over another user's groups.
int getgrouplist(const char*, gid_t group, gid_t* groups, int* count) {
  if (*count < 1) return -1;
  groups[0] = group;
  *count = 1;
  return 1;
}

}  // extern "C"
