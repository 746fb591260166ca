#include "common/sys/process/device_filter.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

/// Of "memory devices" in Linux's Documentation/admin-guide/devices.txt; between them are mem, port and kmsg.
constexpr uint32_t kMajor = 1;
constexpr std::array<uint32_t, 5> kMinors = {3, 5, 7, 8, 9};

/// Each rule is a write of its own.
Result<void> write_rule(const std::string& file, const std::string& rule) {
  TRY_ASSIGN(const UniqueFd fd, open_file(file, O_WRONLY));
  return write_all(fd.get(), rule);
}

Result<void> allow_in_v1(const std::string& directory) {
  TRY(write_rule(directory + "/devices.deny", "a"));
  for (const uint32_t minor : kMinors)
    TRY(write_rule(directory + "/devices.allow", "c " + std::to_string(kMajor) + ":" + std::to_string(minor) + " rwm"));
  return {};
}

bpf_insn instruction(unsigned code, unsigned to, unsigned from, size_t offset, uint32_t value) {
  bpf_insn one{};
  one.code = static_cast<uint8_t>(code);
  one.dst_reg = to & 0xfU;
  one.src_reg = from & 0xfU;
  one.off = static_cast<int16_t>(offset);
  one.imm = static_cast<int32_t>(value);
  return one;
}
bpf_insn load_field(unsigned to, size_t offset) {
  return instruction(BPF_LDX | BPF_MEM | BPF_W, to, BPF_REG_1, offset, 0);
}
bpf_insn jump_if_equal(unsigned left, uint32_t right, size_t over) {
  return instruction(BPF_JMP | BPF_JEQ | BPF_K, left, 0, over, right);
}
bpf_insn put_value(unsigned to, uint32_t value) {
  return instruction(BPF_ALU64 | BPF_MOV | BPF_K, to, 0, 0, value);
}
bpf_insn end_program() {
  return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/// 1: the device may be opened.
std::vector<bpf_insn> device_program() {
  constexpr uint32_t kTypeMask = 0xffff;  // above it: read, write, mknod
  std::vector<bpf_insn> code = {
      put_value(BPF_REG_0, 0),
      load_field(BPF_REG_2, offsetof(bpf_cgroup_dev_ctx, access_type)),
      instruction(BPF_ALU64 | BPF_AND | BPF_K, BPF_REG_2, 0, 0, kTypeMask),
      load_field(BPF_REG_3, offsetof(bpf_cgroup_dev_ctx, major)),
      load_field(BPF_REG_4, offsetof(bpf_cgroup_dev_ctx, minor)),
      jump_if_equal(BPF_REG_2, BPF_DEVCG_DEV_CHAR, 1),
      end_program(),
      jump_if_equal(BPF_REG_3, kMajor, 1),
      end_program(),
  };
  for (size_t i = 0; i < kMinors.size(); ++i)
    code.push_back(jump_if_equal(BPF_REG_4, kMinors.at(i), kMinors.size() - i));
  code.insert(code.end(), {end_program(), put_value(BPF_REG_0, 1), end_program()});
  return code;
}

/// bpf(2), which has no wrapper.
long call_bpf(bpf_cmd command, bpf_attr& attributes) {
  return syscall(SYS_bpf, command, &attributes, sizeof attributes);
}

Result<void> allow_in_v2(const std::string& directory) {
  const auto code = device_program();
  bpf_attr loading{};
  loading.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  loading.insns = reinterpret_cast<uint64_t>(code.data());
  loading.insn_cnt = static_cast<uint32_t>(code.size());
  loading.license = reinterpret_cast<uint64_t>("Apache-2.0");
  const UniqueFd loaded(static_cast<int>(call_bpf(BPF_PROG_LOAD, loading)));
  if (!loaded) return fail_errno(errno, "load a device filter");
  TRY_ASSIGN(const UniqueFd cgroup, open_file(directory, O_RDONLY | O_DIRECTORY));
  bpf_attr attaching{};
  attaching.target_fd = static_cast<uint32_t>(cgroup.get());
  attaching.attach_bpf_fd = static_cast<uint32_t>(loaded.get());
  attaching.attach_type = BPF_CGROUP_DEVICE;
  attaching.attach_flags = BPF_F_ALLOW_MULTI;  // beside those of the cgroups above, all of which count
  if (call_bpf(BPF_PROG_ATTACH, attaching) != 0) return fail_errno(errno, "attach a device filter to " + directory);
  return {};
}

}  // namespace

Result<void> allow_plain_devices(const std::string& directory, CgroupVersion version) {
  return version == CgroupVersion::v2 ? allow_in_v2(directory) : allow_in_v1(directory);
}

}  // namespace situla
