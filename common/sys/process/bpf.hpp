// How is a filter of system calls written and installed? Used by sandbox.cpp and seccomp.cpp only.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/result.hpp"

namespace situla::bpf {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#elif defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_PPC64LE;
#else
#error "seccomp: unknown architecture"
#endif

/// The call returns the error without being made; 0: it seems to succeed.
constexpr uint32_t refuse(int errnum) {
  return SECCOMP_RET_ERRNO | static_cast<uint32_t>(errnum);
}

/// Jumps reach 255 instructions, so every comparison carries its own answer.
class Filter {
 public:
  void load_architecture() { load(offsetof(seccomp_data, arch)); }
  void load_number() { load(offsetof(seccomp_data, nr)); }
  /// Low half of an argument; all three architectures are little endian.
  void load_argument(size_t index) { load(offsetof(seccomp_data, args) + index * sizeof(uint64_t)); }
  void keep_bits(uint32_t bits) { emit(BPF_ALU | BPF_AND | BPF_K, bits); }
  void answer(uint32_t what) { emit(BPF_RET | BPF_K, what); }
  void if_equal(uint32_t value, uint32_t what) { compare(BPF_JEQ, value, true, what); }
  void unless_equal(uint32_t value, uint32_t what) { compare(BPF_JEQ, value, false, what); }
  void if_any_bit(uint32_t bits, uint32_t what) { compare(BPF_JSET, bits, true, what); }
  void unless_any_bit(uint32_t bits, uint32_t what) { compare(BPF_JSET, bits, false, what); }
  /// first <= value <= last.
  void if_between(uint32_t first, uint32_t last, uint32_t what) {
    if (first == last) return if_equal(first, what);
    emit(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2);
    emit(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0);
    answer(what);
  }
  /// The body decides for calls of that number, and allows what it says nothing of.
  template <typename Body>
  void on(uint32_t number, const Body& body) {
    when(BPF_JEQ, number, body, SECCOMP_RET_ALLOW);
  }
  /// As on(), for several numbers. The body may be long.
  template <typename Body>
  void on_any(const std::vector<uint32_t>& numbers, const Body& body) {
    const Filter inner = filled(body, SECCOMP_RET_ALLOW);
    for (size_t left = numbers.size(); left > 0; --left)
      emit(BPF_JMP | BPF_JEQ | BPF_K, numbers[numbers.size() - left], static_cast<uint8_t>(left), 0);
    emit(BPF_JMP | BPF_JA, static_cast<uint32_t>(inner.code_.size()));
    append(inner);
  }
  /// Of few values.
  void unless_any_equal(const std::vector<uint32_t>& values, uint32_t what) {
    for (size_t left = values.size(); left > 0; --left)
      emit(BPF_JMP | BPF_JEQ | BPF_K, values[values.size() - left], static_cast<uint8_t>(left), 0);
    answer(what);
  }
  /// The body decides from that number on; what it says nothing of does not exist.
  template <typename Body>
  void if_at_least(uint32_t number, const Body& body) {
    when(BPF_JGE, number, body, refuse(ENOSYS));
  }
  /// As on(), for all calls of one convention. The body may be long.
  template <typename Body>
  void on_architecture(uint32_t architecture, const Body& body) {
    const Filter inner = filled(body, SECCOMP_RET_ALLOW);
    emit(BPF_JMP | BPF_JEQ | BPF_K, architecture, 1, 0);
    emit(BPF_JMP | BPF_JA, static_cast<uint32_t>(inner.code_.size()));
    append(inner);
  }

  /// For this thread and those to come. `what` as in "install the filter".
  [[nodiscard]] Result<void> install(unsigned long flags, const std::string& what) const {
    // The kernel reads it only.
    const sock_fprog program{static_cast<unsigned short>(code_.size()), const_cast<sock_filter*>(code_.data())};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0) return {};
    Error error = Error::from_errno(errno, what);
    if (error.errnum() == EINVAL || error.errnum() == ENOSYS)
      error.with_code(ErrorCode::kernel).with_hint("this kernel lacks CONFIG_SECCOMP_FILTER");
    return fail(std::move(error));
  }

 private:
  void load(size_t offset) { emit(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void emit(uint16_t code, uint32_t value, uint8_t if_true = 0, uint8_t if_false = 0) {
    code_.push_back({code, if_true, if_false, value});
  }
  void compare(uint16_t how, uint32_t value, bool wanted, uint32_t what) {
    emit(BPF_JMP | how | BPF_K, value, wanted ? 0 : 1, wanted ? 1 : 0);
    answer(what);
  }
  template <typename Body>
  static Filter filled(const Body& body, uint32_t else_answer) {
    Filter inner;
    body(inner);
    inner.answer(else_answer);
    return inner;
  }
  template <typename Body>
  void when(uint16_t how, uint32_t number, const Body& body, uint32_t else_answer) {
    const Filter inner = filled(body, else_answer);
    emit(BPF_JMP | how | BPF_K, number, 0, static_cast<uint8_t>(inner.code_.size()));
    append(inner);
  }
  void append(const Filter& other) { code_.insert(code_.end(), other.code_.begin(), other.code_.end()); }
  std::vector<sock_filter> code_;
};

}  // namespace situla::bpf
