#include "common/sys/identity.hpp"

#include <algorithm>
#include <array>
#include <climits>

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

static_assert(kReadAnyFile == CAP_DAC_READ_SEARCH);

using CapabilitySets = std::array<__user_cap_data_struct, 2>;

Result<CapabilitySets> capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  CapabilitySets sets{};
  if (syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno(errno, "read capabilities");
  return sets;
}

Result<void> set_capabilities(const CapabilitySets& sets, std::string_view what = "set capabilities") {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  if (syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno(errno, what);
  return {};
}

std::vector<gid_t> sorted_unique(std::vector<gid_t> groups) {
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

Result<std::vector<gid_t>> current_groups() {
  const int count = getgroups(0, nullptr);
  if (count < 0) return fail_errno(errno, "read supplementary groups");
  std::vector<gid_t> groups(static_cast<size_t>(count));
  const int got = getgroups(count, groups.data());
  if (got < 0) return fail_errno(errno, "read supplementary groups");
  groups.resize(static_cast<size_t>(got));
  return groups;
}

Result<void> take_groups(const std::vector<gid_t>& groups) {
  if (setgroups(groups.size(), groups.data()) == 0) return {};
  const int errnum = errno;
  // An ordinary user, and everybody in a user namespace with setgroups=deny, may only keep what it has.
  TRY_ASSIGN(const std::vector<gid_t> current, current_groups());
  if (errnum == EPERM && sorted_unique(current) == sorted_unique(groups)) return {};
  return fail_errno(errnum, "set " + std::to_string(groups.size()) + " supplementary groups");
}

/// kept: the bits of capabilities that may be there.
Result<void> verify(const Identity& identity, const CapabilitySets& kept = {}) {
  uid_t uid = 0, euid = 0, suid = 0;
  gid_t gid = 0, egid = 0, sgid = 0;
  if (getresuid(&uid, &euid, &suid) != 0 || getresgid(&gid, &egid, &sgid) != 0)
    return fail_errno(errno, "read own ids");
  TRY_ASSIGN(const std::vector<gid_t> groups, current_groups());
  const bool same = uid == identity.uid && euid == identity.uid && suid == identity.uid && gid == identity.gid &&
                    egid == identity.gid && sgid == identity.gid &&
                    sorted_unique(groups) == sorted_unique(identity.groups);
  if (!same) return fail(ErrorKind::denied, "become uid " + std::to_string(identity.uid) + ": ids differ afterwards");
  if (identity.uid == 0) return {};
  TRY_ASSIGN(const CapabilitySets sets, capabilities());
  for (size_t i = 0; i < sets.size(); ++i)
    if (((sets.at(i).effective | sets.at(i).permitted | sets.at(i).inheritable) & ~kept.at(i).permitted) != 0)
      return fail(ErrorKind::denied, "become uid " + std::to_string(identity.uid) + ": capabilities are left");
  if (setresuid(0, 0, 0) == 0 || setresgid(identity.gid == 0 ? 1 : 0, gid_t(-1), gid_t(-1)) == 0)
    return fail(ErrorKind::denied, "become uid " + std::to_string(identity.uid) + ": the old identity can come back");
  return {};
}

}  // namespace

Result<void> drop_bounding_set() {
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return fail_errno(errno, "drop capability " + std::to_string(capability) + " from the bounding set");
  return {};
}

namespace {

Result<void> take_ids(const Identity& identity) {
  TRY(take_groups(identity.groups));
  if (setresgid(identity.gid, identity.gid, identity.gid) != 0)
    return fail_errno(errno, "become gid " + std::to_string(identity.gid));
  if (setresuid(identity.uid, identity.uid, identity.uid) != 0)
    return fail_errno(errno, "become uid " + std::to_string(identity.uid));
  return {};
}

}  // namespace

Result<void> become(const Identity& identity) {
  TRY(take_ids(identity));
  if (identity.uid != 0) {
    // setresuid clears permitted and effective, not inheritable.
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    TRY(set_capabilities({}));
  }
  return verify(identity);
}

Result<void> become_keeping(const Identity& identity, int capability) {
  if (identity.uid == 0) return fail(ErrorKind::denied, "root keeps more than one capability");
  CapabilitySets kept{};
  const auto number = static_cast<unsigned>(capability);
  auto& set = kept.at(number / 32);
  set.permitted = set.inheritable = set.effective = 1U << (number % 32);
  if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail_errno(errno, "keep a capability");
  TRY(take_ids(identity));
  if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) return fail_errno(errno, "keep a capability");
  (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  TRY(set_capabilities(kept));
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0) != 0)
    return fail_errno(errno, "keep capability " + std::to_string(capability) + " over exec");
  return verify(identity, kept);
}

Result<void> leave_capabilities_to_programs() {
  TRY_ASSIGN(CapabilitySets sets, capabilities());
  for (auto& set : sets) set.effective = 0;
  return set_capabilities(sets);
}

Result<void> own_proc_files_again() {
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return fail_errno(errno, "become dumpable");
  return {};
}

Result<void> set_no_new_privileges() {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "set no_new_privs");
  return {};
}

Result<void> drop_all_capabilities() {
  TRY_ASSIGN(const CapabilitySets before, capabilities());
  // Without CAP_SETPCAP the bounding set stays, and no_new_privs below makes it meaningless.
  if ((before[0].effective & (1U << CAP_SETPCAP)) != 0) TRY(drop_bounding_set());
  (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  TRY(set_capabilities({}));
  return set_no_new_privileges();
}

Result<void> keep_capabilities_over_exec() {
  TRY_ASSIGN(CapabilitySets sets, capabilities());
  // Ambient ones have to be inheritable first.
  for (auto& set : sets) set.inheritable = set.permitted;
  TRY(set_capabilities(sets, "make capabilities inheritable"));
  for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    const auto& set = sets.at(capability / 32);
    if ((set.permitted & (1U << (capability % 32))) == 0) continue;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0)
      return fail_errno(errno, "keep capability " + std::to_string(capability) + " over exec");
  }
  return {};
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  (void)gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::vector<gid_t> supplementary_groups() {
  constexpr gid_t kOverflow = 65534;  // what getgroups(2) says of all those that the namespace does not have
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  groups.resize(static_cast<size_t>(std::max(getgroups(static_cast<int>(groups.size()), groups.data()), 0)));
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  std::erase(groups, kOverflow);
  return groups;
}

bool is_mapped_uid(uid_t uid) {
  const auto map = read_file("/proc/self/uid_map");
  if (!map) return false;
  for (const std::string_view line : split_nonempty(*map, '\n')) {
    const auto words = split_words(line);
    if (words.size() != 3) continue;
    const auto first = parse_unsigned(words[0]), count = parse_unsigned(words[2]);
    if (first && count && uid >= *first && uid - *first < *count) return true;
  }
  return false;
}

bool in_initial_user_namespace() {
  constexpr uid_t kLast = 0xfffffffe;
  return is_mapped_uid(kLast);
}

bool is_neighbour(uid_t uid) {
  return is_mapped_uid(uid) && !in_initial_user_namespace();
}

FileUser::FileUser(uid_t uid) : dumpable_(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)) {
  (void)prctl(PR_GET_PDEATHSIG, &parent_signal_, 0, 0, 0);
  before_ = static_cast<uid_t>(setfsuid(uid));
}

FileUser::~FileUser() {
  (void)setfsuid(before_);
  // Both are lost with every change (credentials(7), prctl(2)).
  if (dumpable_ == 1) (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  (void)prctl(PR_SET_PDEATHSIG, parent_signal_, 0, 0, 0);
}

}  // namespace situla
