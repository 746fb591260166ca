#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/fd_path.hpp"
#include "hooks/inject/hooks.hpp"

namespace situla {
namespace {

constexpr size_t kMaxDatabase = size_t{4} << 20U;
constexpr size_t kMaxSkeletonFile = size_t{1} << 20U;
constexpr size_t kMaxSkeletonBytes = size_t{8} << 20U;
constexpr size_t kMaxSkeletonEntries = 1000;
constexpr int kMaxSkeletonDepth = 8;
constexpr std::string_view kOverflowId = "65534";

using Settings = std::map<std::string, std::string, std::less<>>;

/// login.defs(5) has "NAME value", default/useradd "NAME=value".
void read_settings(const RootDir& root, const std::string& path, char separator, Settings& settings) {
  const auto content = root.read_file(path);
  if (!content) return;
  for (const std::string_view raw : split(*content, '\n')) {
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#') continue;
    if (separator == '=') {
      if (const auto pair = cut(line, '=')) settings[std::string(trim(pair->first))] = trim(pair->second);
    } else if (const auto words = split_words(line); words.size() >= 2) {
      settings[std::string(words[0])] = words[1];
    }
  }
}

std::string setting(const Settings& settings, std::string_view name, std::string_view fallback) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string(fallback) : found->second;
}

bool is_executable(const RootDir& root, const std::string& path) {
  const auto fd = root.resolve(path);
  struct stat status {};
  return fd && fstat(fd->get(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 0111U) != 0;
}

/// What the kernel shows for users ("overflowuid") and groups ("overflowgid") that the container does not have.
std::string overflow_id(const RootDir& host_root, const std::string& name) {
  const auto text = host_root.read_file("/proc/sys/kernel/" + name);
  const auto number = text ? parse_unsigned(trim(*text)) : std::nullopt;
  return number ? std::to_string(*number) : std::string(kOverflowId);
}

/// The generated lines first, then those of the image whose names are not taken yet; "_apt" would make apt try to
/// become it, which needs a range.
std::string merge_database(const std::vector<std::string>& generated, const std::string& existing, bool has_range) {
  std::string merged;
  std::vector<std::string_view> names;
  if (!has_range) names.emplace_back("_apt");
  const auto add = [&](std::string_view line) {
    const std::string_view name = line.substr(0, line.find(':'));
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
    names.push_back(name);
    merged += line;
    merged += '\n';
  };
  for (const std::string& line : generated) add(line);
  const size_t own = names.size();
  for (const std::string_view line : split(existing, '\n')) {
    // Only our own names have to be kept unique; what else an image repeats is its own affair.
    names.resize(own);
    add(line);
  }
  return merged;
}

/// Behind the image's groups, which keep their names and numbers: what cannot be found there by its number, or not by
/// its name. `groups`, `ls -l` and chgrp(1) know them then.
std::string lines_of_other_groups(const UserEntry& user, const std::string& database) {
  std::set<std::string_view> names, numbers;
  for (const std::string_view line : split_nonempty(database, '\n')) {
    const auto fields = split(line, ':');
    names.insert(fields[0]);
    if (fields.size() > 2) numbers.insert(fields[2]);
  }
  std::string lines;
  for (const GroupEntry& group : user.groups) {
    const std::string number = std::to_string(group.gid);
    if (names.contains(group.name) && numbers.contains(number)) continue;
    lines += group.name + ":x:" + number + ":" + user.name + "\n";
  }
  return lines;
}

std::string without_separators(std::string text) {
  std::erase_if(text, [](char c) { return c == ':' || c == '\n' || c == '\0'; });
  return text;
}

/// Copies a tree of the container into a edits, following links (cp -Lr). The tree is the image's choice, and its
/// links may make it any size: what is copied in all is limited, no directory is copied twice, and none of another file
/// system (SKEL=/ has /proc). Directories only: the files of an overlay have other device numbers than it.
class SkeletonCopy {
 public:
  SkeletonCopy(const RootDir& root, ContainerEdits& edits) : root_(root), edits_(edits) {}

  void copy(const std::string& from, const std::string& to, int depth = 0) {
    const auto directory = root_.open_at(from, O_RDONLY | O_DIRECTORY);
    struct stat status {};
    if (!directory || depth > kMaxSkeletonDepth || fstat(directory->get(), &status) != 0) return;
    if (seen_.empty()) device_ = status.st_dev;
    if (status.st_dev != device_ || !seen_.insert(status.st_ino).second) return;
    const auto names = list_directory(fd_path(directory->get()));
    if (!names) return;
    for (const std::string& name : *names) {
      if (full_) return;
      copy_entry(from + "/" + name, to + "/" + name, depth);
    }
  }
  /// Something was left out because there is too much.
  [[nodiscard]] bool full() const { return full_; }

 private:
  void copy_entry(const std::string& path, const std::string& to, int depth) {
    const auto entry = root_.resolve(path);
    struct stat status {};
    if (!entry || fstat(entry->get(), &status) != 0) return;
    if (++entries_ > kMaxSkeletonEntries) {
      full_ = true;
      return;
    }
    const auto mode = static_cast<mode_t>(status.st_mode & 07777U);
    if (S_ISDIR(status.st_mode)) {
      edits_.files.push_back({FileChange::Kind::directory, to, "", mode | 0700U});
      copy(path, to, depth + 1);
    } else if (S_ISREG(status.st_mode)) {
      auto content = root_.read_file(path, kMaxSkeletonFile);
      if (!content) return;
      bytes_ += content->size();
      if (bytes_ > kMaxSkeletonBytes) {
        full_ = true;
        return;
      }
      edits_.files.push_back({FileChange::Kind::write, to, std::move(*content), mode});
    }
  }

  const RootDir& root_;
  ContainerEdits& edits_;
  dev_t device_ = 0;
  std::set<ino_t> seen_;  ///< directories
  size_t entries_ = 0, bytes_ = 0;
  bool full_ = false;
};

void propose_home(const HookContext& context, const Settings& settings, ContainerEdits& edits) {
  const std::string& home = context.user.home;
  if (!home.starts_with('/') || context.root.exists(home)) return;
  if (setting(settings, "CREATE_HOME", "yes") != "yes") return;
  unsigned mask = 077;
  const std::string text = setting(settings, "UMASK", "077");
  (void)std::from_chars(text.data(), text.data() + text.size(), mask, 8);
  edits.files.push_back({FileChange::Kind::directory, home, "", static_cast<mode_t>((0777U & ~mask) | 0700U)});
  const std::string skeleton = setting(settings, "SKEL", "/etc/skel");
  SkeletonCopy copy(context.root, edits);
  copy.copy(skeleton, home);
  if (copy.full())
    context.log.warning("the home directory " + printable(home) + " is made from a part of " + printable(skeleton) +
                        ", which has more than " + std::to_string(kMaxSkeletonEntries) + " entries or " +
                        format_size(kMaxSkeletonBytes));
}

void propose_mailbox(const HookContext& context, const Settings& settings, ContainerEdits& edits) {
  if (setting(settings, "CREATE_MAIL_SPOOL", "no") != "yes") return;
  const std::string path = setting(settings, "MAIL_DIR", "/var/mail") + "/" + context.user.name;
  if (!context.root.exists(path)) edits.files.push_back({FileChange::Kind::write, path, "", 0660});
}

}  // namespace

Result<ContainerEdits> shadow_hook(const HookContext& context) {
  Settings settings;
  read_settings(context.root, "/etc/login.defs", ' ', settings);
  read_settings(context.root, "/etc/default/useradd", '=', settings);
  UserEntry user = context.user;
  for (std::string* field : {&user.name, &user.gecos, &user.home, &user.shell, &user.group})
    *field = without_separators(std::move(*field));
  for (GroupEntry& group : user.groups) group.name = without_separators(std::move(group.name));
  if (user.shell.empty() || !is_executable(context.root, user.shell))
    user.shell = setting(settings, "SHELL", "/bin/sh");

  const std::string nobody = overflow_id(context.host_root, "overflowuid");
  const std::string nogroup = overflow_id(context.host_root, "overflowgid");
  const std::vector<std::string> accounts = {
      "root:x:0:0:root:/root:" + user.shell, "nobody:x:" + nobody + ":" + nogroup + ":nobody:/:/sbin/nologin",
      user.name + ":x:" + std::to_string(user.uid) + ":" + std::to_string(user.gid) + ":" + user.gecos + ":" +
          user.home + ":" + user.shell};
  const std::vector<std::string> groups = {"root:x:0:", "nogroup:x:" + nogroup + ":",
                                           user.group + ":x:" + std::to_string(user.gid) + ":"};
  ContainerEdits edits;
  const auto passwd = context.root.read_file("/etc/passwd", kMaxDatabase);
  const auto group = context.root.read_file("/etc/group", kMaxDatabase);
  edits.files.push_back(
      {FileChange::Kind::write, "/etc/passwd", merge_database(accounts, passwd.value_or(""), context.has_range), 0644});
  std::string all_groups = merge_database(groups, group.value_or(""), context.has_range);
  all_groups += lines_of_other_groups(user, all_groups);
  edits.files.push_back({FileChange::Kind::write, "/etc/group", std::move(all_groups), 0644});
  edits.in_host_directories = true;  // a home directory in /tmp, or where the site has mounted one
  propose_home(context, settings, edits);
  propose_mailbox(context, settings, edits);
  return edits;
}

}  // namespace situla
