// How does a test do something as a user to whom /etc/subuid and /etc/subgid give a range of ids? For suites that run
// as root.
#pragma once

#include <string>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "common/sys/file.hpp"
#include "tests/support/as_user.hpp"
#include "tests/support/temp_dir.hpp"

namespace situla::test {

/// Of both files: 65,536 ids from 3000000000 on.
constexpr const char* kRangerLine = "ranger:3000000000:65536\n";

/// In this mount namespace the file is `text`.
inline Result<void> put_file(const std::string& directory, const std::string& path, const std::string& text,
                             mode_t mode = 0644) {
  const std::string copy = directory + path.substr(path.rfind('/'));
  TRY(write_file_atomically(copy, text, mode, Sync::no));
  TRY_ASSIGN(const UniqueFd source, open_file(copy, O_PATH));
  TRY_ASSIGN(const UniqueFd target, open_file(path, O_PATH));
  return bind_at(target.get(), source.get(), false, {}, path);
}

/// In a child as the test user, called ranger, for whom both files have this text. before: done as root, in the mount
/// namespace, with a directory for files.
inline std::string as_ranger(const std::string& subordinate, const Body& body,
                             const std::function<Result<void>(const std::string&)>& before = {}) {
  const TempDir accounts;
  if (chmod(accounts.path().c_str(), 0755) != 0) return "chmod";
  return in_child([&]() -> Result<void> {
    TRY(unshare_namespaces(kMountNs));
    TRY(set_propagation("/", Propagation::private_mount, true));
    const std::string number = std::to_string(kTestUid), group = std::to_string(kTestGid);
    const auto with = [](const std::string& path, const std::string& line) {
      return read_file(path).value_or("") + line;
    };
    TRY(put_file(accounts.path(), "/etc/passwd",
                 with("/etc/passwd", "ranger:x:" + number + ":" + group + "::/:/bin/sh\n")));
    TRY(put_file(accounts.path(), "/etc/group", with("/etc/group", "ranger:x:" + group + ":\n")));
    TRY(put_file(accounts.path(), "/etc/subuid", subordinate));
    TRY(put_file(accounts.path(), "/etc/subgid", subordinate));
    if (before) TRY(before(accounts.path()));
    TRY(become({kTestUid, kTestGid, {kTestGid}}));
    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    return body();
  });
}

}  // namespace situla::test
