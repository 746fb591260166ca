#include "common/sys/process/seccomp.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/kernel.hpp"
#include "common/sys/process/bpf.hpp"

namespace situla {
namespace {

using bpf::Filter;

/// One calling convention: its audit name, the calls that pretend to succeed, those among them that give a file to a
/// group, and those that answer with the current id when asked with -1 (setfsuid(2)) and so must reach the kernel then.
struct Table {
  uint32_t arch;
  std::vector<uint32_t> ignored;
  std::vector<uint32_t> chown;     ///< uid and gid are the second and third argument
  std::vector<uint32_t> chown_at;  ///< they are the third and fourth
  std::vector<uint32_t> setfs;     ///< 32-bit ids
  std::vector<uint32_t> setfs16;   ///< 16-bit ids: only the low half of the argument counts
};

Table native_table() {
  Table table;
  table.arch = bpf::kArchitecture;
  table.ignored = {SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups};
  table.chown = {SYS_fchown};
#ifdef SYS_chown  // aarch64 has only the *at form
  table.chown.push_back(SYS_chown);
  table.chown.push_back(SYS_lchown);
#endif
  table.chown_at = {SYS_fchownat};
  table.setfs = {SYS_setfsuid, SYS_setfsgid};
  return table;
}

#if defined(__x86_64__)
constexpr uint32_t kX32Bit = 0x40000000;

/// arch/x86/entry/syscalls/syscall_32.tbl; its header cannot be included beside the 64-bit one.
Table i386_table() {
  return {AUDIT_ARCH_I386,
          {16,  95,  182,                       // lchown fchown chown
           198, 207, 212, 298,                  // lchown32 fchown32 chown32 fchownat
           23,  46,  70,  71,  164, 170, 81,    // setuid setgid setreuid setregid setresuid setresgid setgroups
           213, 214, 203, 204, 208, 210, 206},  // the same, 32-bit ids
          {},                                   // always pretended: a filter has no room for the groups four times
          {},
          {215, 216},   // setfsuid32 setfsgid32
          {138, 139}};  // setfsuid setfsgid
}

/// x32 has the numbers of x86_64 with one bit more, under the same audit name.
void add_x32(Table& table) {
  const auto add = [](std::vector<uint32_t>& numbers) {
    const size_t count = numbers.size();
    for (size_t i = 0; i < count; ++i) numbers.push_back(numbers[i] | kX32Bit);
  };
  for (auto* numbers : {&table.ignored, &table.chown, &table.chown_at, &table.setfs}) add(*numbers);
}
#endif

constexpr uint32_t kPretend = bpf::refuse(0);

/// To whom this process can give a file of its own: the groups that it is in. None where it is in one only, as files
/// are of that one anyway.
struct Owners {
  uint32_t uid, gid;                                  ///< its own
  std::vector<std::pair<uint32_t, uint32_t>> groups;  ///< the others: the first and the last of a row of numbers
};

Owners own_ids() {
  constexpr size_t kMostRanges = 340;  // as a map of ids has (user_namespaces(7)), and a filter holds
  Owners owners{geteuid(), getegid(), {}};
  for (const gid_t group : supplementary_groups()) {
    if (group == owners.gid) continue;
    if (!owners.groups.empty() && owners.groups.back().second + 1 == group)
      owners.groups.back().second = group;
    else if (owners.groups.size() < kMostRanges)
      owners.groups.emplace_back(group, group);
  }
  return owners;
}

/// `uid`: index of that argument; the gid follows it. What names this user as well as his own group is pretended as
/// ever: "chown -R me:mine" changes nothing of his, and must not fail for what is not his.
void add_chown(Filter& is, const std::vector<uint32_t>& numbers, size_t uid, const Owners& owners) {
  constexpr auto kAsItIs = static_cast<uint32_t>(-1);
  is.on_any(numbers, [&](Filter& body) {
    body.load_argument(uid + 1);
    if (!owners.groups.empty())
      body.on(owners.gid, [&](Filter& own) {
        own.load_argument(uid);
        own.if_equal(kAsItIs, SECCOMP_RET_ALLOW);
        own.answer(kPretend);
      });
    body.load_argument(uid);
    body.unless_any_equal({kAsItIs, owners.uid}, kPretend);
    body.load_argument(uid + 1);
    for (const auto& [first, last] : owners.groups) body.if_between(first, last, SECCOMP_RET_ALLOW);
    body.answer(kPretend);
  });
}

void add_table(Filter& filter, const Table& table, const Owners& owners) {
  filter.on_architecture(table.arch, [&](Filter& is) {
    is.load_number();
    for (const uint32_t number : table.ignored) is.if_equal(number, kPretend);
    if (!table.chown.empty()) add_chown(is, table.chown, 1, owners);
    if (!table.chown_at.empty()) add_chown(is, table.chown_at, 2, owners);
    const auto add_setfs = [&is](uint32_t number, uint32_t mask) {
      is.on(number, [mask](Filter& body) {
        body.load_argument(0);
        body.keep_bits(mask);
        body.unless_equal(mask, kPretend);
      });
    };
    for (const uint32_t number : table.setfs) add_setfs(number, 0xffffffff);
    for (const uint32_t number : table.setfs16) add_setfs(number, 0xffff);
  });
}

Filter id_filter(const Owners& owners) {
  Filter filter;
  filter.load_architecture();
  Table native = native_table();
#if defined(__x86_64__)
  add_x32(native);
#endif
  add_table(filter, native, owners);
#if defined(__x86_64__)
  add_table(filter, i386_table(), owners);
#endif
  // Calls of an unknown convention are not our business: the filter is a convenience, not a barrier.
  filter.answer(SECCOMP_RET_ALLOW);
  return filter;
}

Result<void> install(const Filter& filter) {
  constexpr const char* kWhat = "install the seccomp filter for chown and set*id";
  // Without SPEC_ALLOW kernels before 5.16 switch speculation mitigations on, which slows every task down for nothing.
  auto done = filter.install(kernel::kSeccompSpecAllow, kWhat);
  return done || done.error().errnum() != EINVAL ? done : filter.install(0, kWhat);
}

}  // namespace

Result<void> install_id_filter() {
  const Filter filter = id_filter(own_ids());
  auto installed = install(filter);
  if (installed || installed.error().errnum() != EACCES) return installed;
  TRY(set_no_new_privileges());  // no CAP_SYS_ADMIN in our user namespace
  return install(filter);
}

}  // namespace situla
