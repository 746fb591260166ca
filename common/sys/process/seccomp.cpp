#include "common/sys/process/seccomp.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/sys/identity.hpp"
#include "common/sys/kernel.hpp"

namespace situla {
namespace {

/// One calling convention: its audit name, the calls that pretend to succeed, and those that answer with the current id
/// when asked with -1 (setfsuid(2)) and so must reach the kernel then.
struct Table {
  uint32_t arch;
  std::vector<uint32_t> ignored;
  std::vector<uint32_t> setfs;    ///< 32-bit ids
  std::vector<uint32_t> setfs16;  ///< 16-bit ids: only the low half of the argument counts
};

Table native_table() {
  Table table;
#if defined(__x86_64__)
  table.arch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  table.arch = AUDIT_ARCH_AARCH64;
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
  table.arch = AUDIT_ARCH_PPC64LE;
#else
#error "seccomp: unknown architecture"
#endif
  table.ignored = {SYS_fchown,   SYS_fchownat,  SYS_setuid,    SYS_setgid,   SYS_setreuid,
                   SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setgroups};
#ifdef SYS_chown  // aarch64 has only the *at form
  table.ignored.push_back(SYS_chown);
  table.ignored.push_back(SYS_lchown);
#endif
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
          {215, 216},                           // setfsuid32 setfsgid32
          {138, 139}};                          // setfsuid setfsgid
}

/// x32 has the numbers of x86_64 with one bit more, under the same audit name.
void add_x32(Table& table) {
  const auto add = [](std::vector<uint32_t>& numbers) {
    const size_t count = numbers.size();
    for (size_t i = 0; i < count; ++i) numbers.push_back(numbers[i] | kX32Bit);
  };
  add(table.ignored);
  add(table.setfs);
}
#endif

using Program = std::vector<sock_filter>;

void emit(Program& program, uint16_t code, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
  program.push_back({code, if_true, if_false, value});
}

constexpr uint32_t kPretend = SECCOMP_RET_ERRNO | 0;  // errno 0: the call returns 0 without being made

/// Jumps are at most 255 instructions, so every comparison carries its own answer instead of jumping to a common one.
void emit_table(Program& program, const Table& table) {
  Program body;
  emit(body, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  for (const uint32_t number : table.ignored) {
    emit(body, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    emit(body, BPF_RET | BPF_K, kPretend);
  }
  const auto emit_setfs = [&body](uint32_t number, uint32_t mask) {
    emit(body, BPF_JMP | BPF_JEQ | BPF_K, number, 0, 5);
    // Low half of the first argument (all three architectures are little endian).
    emit(body, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args));
    emit(body, BPF_ALU | BPF_AND | BPF_K, mask);
    emit(body, BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1);
    emit(body, BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    emit(body, BPF_RET | BPF_K, kPretend);
  };
  for (const uint32_t number : table.setfs) emit_setfs(number, 0xffffffff);
  for (const uint32_t number : table.setfs16) emit_setfs(number, 0xffff);
  emit(body, BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  // Another convention: over the body, which is too long for the 8-bit offsets of a conditional jump.
  emit(program, BPF_JMP | BPF_JEQ | BPF_K, table.arch, 1, 0);
  emit(program, BPF_JMP | BPF_JA, static_cast<uint32_t>(body.size()));
  program.insert(program.end(), body.begin(), body.end());
}

Program id_filter() {
  Program program;
  emit(program, BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
  Table native = native_table();
#if defined(__x86_64__)
  add_x32(native);
  emit_table(program, native);
  emit_table(program, i386_table());
#else
  emit_table(program, native);
#endif
  // Calls of an unknown convention are not our business: the filter is a convenience, not a barrier.
  emit(program, BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return program;
}

/// 0 or an errno.
int install(const sock_fprog& program) {
  // Without SPEC_ALLOW kernels before 5.16 switch speculation mitigations on, which slows every task down for nothing.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kernel::kSeccompSpecAllow, &program) == 0) return 0;
  if (errno != EINVAL) return errno;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

}  // namespace

Result<void> install_id_filter() {
  Program instructions = id_filter();
  const sock_fprog program{static_cast<unsigned short>(instructions.size()), instructions.data()};
  int errnum = install(program);
  if (errnum == EACCES) {  // no CAP_SYS_ADMIN in our user namespace
    TRY(set_no_new_privileges());
    errnum = install(program);
  }
  if (errnum == 0) return {};
  Error error = Error::from_errno(errnum, "install the seccomp filter for chown and set*id");
  if (errnum == EINVAL || errnum == ENOSYS) error.with_hint("this kernel lacks CONFIG_SECCOMP_FILTER");
  return fail(std::move(error));
}

}  // namespace situla
