#include "tests/userns/export_support.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace situla::test {
namespace fs = std::filesystem;
namespace {

struct Seen {
  struct stat status {};
  std::string text;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

std::string attributes_of(const std::string& path) {
  std::array<char, 65536> names{};
  const ssize_t size = llistxattr(path.c_str(), names.data(), names.size());
  std::map<std::string, std::string> sorted;
  for (const char* name = names.data(); size > 0 && name < names.data() + size; name += std::strlen(name) + 1) {
    const std::string text = name;
    if (!text.starts_with("user.") && text != "security.capability") continue;
    std::array<char, 65536> value{};
    const ssize_t length = lgetxattr(path.c_str(), name, value.data(), value.size());
    sorted[text] = length < 0 ? "unreadable" : std::string(value.data(), static_cast<size_t>(length));
  }
  std::string text;
  for (const auto& [name, value] : sorted) text += " " + name + "=" + std::to_string(std::hash<std::string>()(value));
  return text;
}

void collect(const std::string& root, const std::string& path, std::map<std::string, Seen>& seen) {
  const std::string full = root + path;
  Seen entry;
  if (lstat(full.c_str(), &entry.status) != 0) return;
  std::ostringstream text;
  const mode_t mode = entry.status.st_mode;
  text << (mode & S_IFMT) / 010000 << " " << std::oct << (mode & 07777) << std::dec << " " << entry.status.st_mtime;
  if (S_ISREG(mode)) text << " size " << entry.status.st_size << " hash " << std::hash<std::string>()(content_of(full));
  if (S_ISLNK(mode)) text << " -> " << fs::read_symlink(full).string();
  text << attributes_of(full);
  entry.text = text.str();
  seen[path.empty() ? "/" : path] = entry;
  if (!S_ISDIR(mode)) return;
  for (const auto& child : fs::directory_iterator(full))
    collect(root, path + "/" + child.path().filename().string(), seen);
}

Listing texts(const std::map<std::string, Seen>& seen) {
  std::map<std::pair<dev_t, ino_t>, int> links;
  for (const auto& [path, entry] : seen) ++links[{entry.status.st_dev, entry.status.st_ino}];
  Listing listing;
  for (const auto& [path, entry] : seen) {
    listing[path] = entry.text;
    if (!S_ISDIR(entry.status.st_mode))
      listing[path] += " links " + std::to_string(links[{entry.status.st_dev, entry.status.st_ino}]);
  }
  return listing;
}

bool excluded(const std::string& path, const std::map<std::string, Seen>& seen) {
  if (path.starts_with("/dev/") || path == "/.lock") return true;
  for (fs::path above = path; above != "/"; above = above.parent_path()) {
    const auto found = seen.find(above.string());
    if (found == seen.end()) continue;
    const struct stat& status = found->second.status;
    if ((status.st_mode & 07777) != 0) continue;
    if (S_ISDIR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_size == 0)) return true;
  }
  return false;
}

class Changer {
 public:
  Changer(std::string root, std::mt19937& random) : root_(std::move(root)), random_(random) {}

  void step() {
    const std::string path = some_path();
    const std::string other = some_path();
    switch (pick(22)) {
      case 0:
      case 1:
      case 2:
        return write(path, O_TRUNC, size());
      case 3:
        return write(path, O_APPEND, 10);
      case 4:
        std::ignore = truncate(path.c_str(), static_cast<off_t>(pick(200000)));
        return;
      case 5:
        return sparse(path);
      case 6:
      case 7:
        (void)mkdir(path.c_str(), 0755);
        return;
      case 8:
        (void)unlink(path.c_str());
        return;
      case 9:
        return remove_all(path);
      case 10:
        remove_all(path);
        return write(path, O_TRUNC, size());
      case 11:
        remove_all(path);
        (void)mkdir(path.c_str(), 0750);
        return write(path + "/" + name(), O_TRUNC, size());
      case 12:
        (void)rename(path.c_str(), other.c_str());
        return;
      case 13:
        std::ignore = link(path.c_str(), other.c_str());
        return;
      case 14:
        std::ignore = symlink(("../" + name()).c_str(), path.c_str());
        return;
      case 15:
      case 16:
        return mode(path);
      case 17:
        return attribute(path);
      case 18:
        return time(path);
      case 19:
        (void)mkfifo(path.c_str(), 0640);
        return;
      case 20:
        return write(path.substr(0, path.rfind('/')) + "/.wh." + name(), O_TRUNC, 5);
      default:
        return write(path, 0, 1);
    }
  }

 private:
  unsigned pick(unsigned count) { return static_cast<unsigned>(random_() % count); }
  std::string name() {
    static const std::array<const char*, 8> kNames = {"a", "b", "c", "dev", "e\n", "long name with spaces", "g", "h"};
    return kNames[pick(kNames.size())];
  }
  /// Of what is there in half of the cases, so that most changes meet something.
  std::string some_path() {
    std::string path = root_;
    const unsigned depth = 1 + pick(4);
    for (unsigned i = 0; i < depth; ++i) {
      struct stat status {};
      path += "/" + name();
      if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) break;
    }
    return path;
  }
  size_t size() {
    static const std::array<size_t, 7> kSizes = {0, 1, 700, 4096, 130000, 131072, 300000};
    return kSizes[pick(kSizes.size())];
  }
  std::string bytes(size_t count) {
    std::string text(count, 'x');
    const unsigned step = 1 + pick(50);  // from noise to what compresses well
    for (size_t i = 0; i < count; i += step) text[i] = static_cast<char>(random_());
    return text;
  }
  void write(const std::string& path, int flags, size_t count) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0644);
    if (fd < 0) return;
    const std::string text = bytes(count);
    if (::write(fd, text.data(), text.size()) < 0) std::perror("write");
    close(fd);
  }
  void sparse(const std::string& path) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return;
    std::ignore = ftruncate(fd, 900000);
    if (pwrite(fd, "middle", 6, 400000) < 0) std::perror("write");
    close(fd);
  }
  static void remove_all(const std::string& path) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  static bool is_link(const std::string& path) {
    struct stat status {};
    return lstat(path.c_str(), &status) != 0 || S_ISLNK(status.st_mode);
  }
  void mode(const std::string& path) {
    static const std::array<mode_t, 8> kModes = {0000, 0111, 0400, 0644, 0755, 01777, 02755, 04755};
    if (!is_link(path)) (void)chmod(path.c_str(), kModes[pick(kModes.size())]);
  }
  void attribute(const std::string& path) {
    if (is_link(path)) return;
    const std::string key = "user." + name();
    if (pick(3) == 0) {
      (void)removexattr(path.c_str(), key.c_str());
      return;
    }
    const std::string value = bytes(pick(300));
    (void)setxattr(path.c_str(), key.c_str(), value.data(), value.size(), 0);
    // cap_net_raw+ep, as setcap(8) writes it.
    static constexpr std::array<unsigned char, 20> kCapability = {1, 0, 0, 2, 0, 0x20};
    if (pick(4) == 0) (void)setxattr(path.c_str(), "security.capability", kCapability.data(), kCapability.size(), 0);
  }
  void time(const std::string& path) {
    const timespec when{static_cast<time_t>(1000000000 + pick(500000000)), 0};
    const std::array<timespec, 2> both = {when, when};
    (void)utimensat(AT_FDCWD, path.c_str(), both.data(), AT_SYMLINK_NOFOLLOW);
  }

  std::string root_;
  std::mt19937& random_;
};

}  // namespace

Listing list_tree(const std::string& root) {
  std::map<std::string, Seen> seen;
  collect(root, "", seen);
  return texts(seen);
}

Listing list_for_image(const std::string& root) {
  std::map<std::string, Seen> seen, kept;
  collect(root, "", seen);
  for (auto& [path, entry] : seen) {
    if (excluded(path, seen)) continue;
    const mode_t mode = entry.status.st_mode;
    if (S_ISDIR(mode) && (mode & 0500) != 0500) {
      std::ostringstream from, to;
      from << "4 " << std::oct << (mode & 07777) << " ";
      to << "4 " << std::oct << ((mode & 07777) | 0700) << " ";
      entry.text.replace(0, from.str().size(), to.str());
    }
    kept[path] = entry;
  }
  return texts(kept);
}

std::string differences(const Listing& expected, const Listing& found) {
  std::string text;
  for (const auto& [path, line] : expected) {
    const auto other = found.find(path);
    if (other == found.end())
      text += "missing: " + path + ": " + line + "\n";
    else if (other->second != line)
      text += path + ":\n  expected " + line + "\n  found    " + other->second + "\n";
  }
  for (const auto& [path, line] : found)
    if (!expected.contains(path)) text += "too much: " + path + ": " + line + "\n";
  return text.substr(0, 3000);
}

void make_random_tree(const std::string& root, std::mt19937& random, int count) {
  for (const char* name : {"/a", "/b", "/c", "/a/b", "/a/c", "/b/a", "/dev", "/a/b/c"})
    (void)mkdir((root + name).c_str(), 0755);
  change_randomly(root, random, count);
}

void change_randomly(const std::string& root, std::mt19937& random, int count) {
  Changer changer(root, random);
  for (int i = 0; i < count; ++i) changer.step();
}

Result<void> shell(const std::string& command) {
  std::FILE* pipe = popen(("( " + command + " ) 2>&1").c_str(), "r");
  if (pipe == nullptr) return fail_errno(errno, command);
  std::string output;
  std::array<char, 4096> buffer{};
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), count);
  if (pclose(pipe) != 0) return fail(ErrorKind::failure, command + ": " + output.substr(0, 2000));
  return {};
}

}  // namespace situla::test
