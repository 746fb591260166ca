#include "common/spec/container_spec.hpp"

#include <algorithm>
#include <limits>

namespace situla {
namespace {

// Layout: magic, then each field in the order of the struct; numbers are 32-bit little-endian, strings and lists are
// their length and then their content, enumerations one byte. Another layout gets another last letter of the magic.
constexpr std::string_view kMagic = "SITULA-SPEC-D";
constexpr size_t kMaxBytes = size_t{16} << 20U;

class Writer {
 public:
  void number(size_t value) {
    // Lengths beyond the limit cannot be represented; deserialize() then refuses the whole by its size.
    const auto word = static_cast<uint32_t>(std::min<size_t>(value, std::numeric_limits<uint32_t>::max()));
    for (unsigned shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>((word >> shift) & 0xFFU);
  }
  void byte(uint8_t value) { bytes_ += static_cast<char>(value); }
  void text(std::string_view value) {
    number(value.size());
    bytes_ += value;
  }
  void list(const std::vector<std::string>& values) {
    number(values.size());
    for (const std::string& value : values) text(value);
  }
  void raw(std::string_view value) { bytes_ += value; }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Every getter checks the bounds; nothing is allocated that the remaining bytes could not fill.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  Result<std::string_view> take(size_t size) {
    if (size > rest_.size()) return fail(ErrorKind::corrupt, "container specification: cut short");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  Result<size_t> number() {
    TRY_ASSIGN(const std::string_view bytes, take(4));
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) word |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return word;
  }
  template <typename Enum>
  Result<Enum> enumeration(Enum last) {
    TRY_ASSIGN(const std::string_view byte, take(1));
    const auto value = static_cast<unsigned char>(byte[0]);
    if (value > static_cast<unsigned char>(last))
      return fail(ErrorKind::corrupt, "container specification: unknown value " + std::to_string(value));
    return static_cast<Enum>(value);
  }
  Result<bool> flag() {
    TRY_ASSIGN(const std::string_view byte, take(1));
    if (byte[0] != 0 && byte[0] != 1) return fail(ErrorKind::corrupt, "container specification: neither yes nor no");
    return byte[0] == 1;
  }
  Result<std::string> text() {
    TRY_ASSIGN(const size_t size, number());
    TRY_ASSIGN(const std::string_view bytes, take(size));
    // A NUL would make a path mean one thing here and another to the kernel.
    if (bytes.find('\0') != std::string_view::npos)
      return fail(ErrorKind::corrupt, "container specification: a string holds a NUL byte");
    return std::string(bytes);
  }
  Result<std::vector<std::string>> list() {
    TRY_ASSIGN(const size_t count, number());
    std::vector<std::string> values;
    for (size_t i = 0; i < count; ++i) {
      TRY_ASSIGN(std::string value, text());
      values.push_back(std::move(value));
    }
    return values;
  }
  Result<void> finish() const {
    if (!rest_.empty()) return fail(ErrorKind::corrupt, "container specification: bytes after its end");
    return {};
  }

 private:
  std::string_view rest_;
};

Result<MountOption> read_mount(Reader& reader) {
  MountOption mount;
  TRY_ASSIGN(mount.kind, reader.enumeration(MountOption::Kind::umount));
  TRY_ASSIGN(mount.source, reader.text());
  TRY_ASSIGN(mount.target, reader.text());
  TRY_ASSIGN(mount.flags, reader.list());
  return mount;
}

}  // namespace

std::string ContainerSpec::serialize() const {
  Writer writer;
  writer.raw(kMagic);
  writer.text(image);
  writer.text(name);
  writer.text(directory);
  writer.byte(static_cast<uint8_t>(name_flag));
  writer.text(save);
  writer.number(mounts.size());
  for (const MountOption& mount : mounts) {
    writer.byte(static_cast<uint8_t>(mount.kind));
    writer.text(mount.source);
    writer.text(mount.target);
    writer.list(mount.flags);
  }
  writer.text(workdir);
  writer.list(keep_env);
  writer.list(devices);
  writer.byte(static_cast<uint8_t>(mount_home));
  writer.byte(static_cast<uint8_t>(remap_root));
  writer.byte(static_cast<uint8_t>(writable));
  writer.byte(static_cast<uint8_t>(entrypoint));
  for (const bool flag : {entrypoint_log, unshare.pid, unshare.net, unshare.ipc, unshare.uts})
    writer.byte(flag ? 1 : 0);
  writer.number(terminal_columns);
  writer.number(terminal_rows);
  return writer.take();
}

Result<ContainerSpec> ContainerSpec::deserialize(std::string_view bytes) {
  if (bytes.size() > kMaxBytes) return fail(ErrorKind::corrupt, "container specification: larger than 16 MiB");
  Reader reader(bytes);
  TRY_ASSIGN(const std::string_view magic, reader.take(kMagic.size()));
  if (magic != kMagic)
    return fail(Error(ErrorKind::corrupt, "container specification: not of this version")
                    .with_hint("the plugin and the programs in libexec must come from the same release"));
  ContainerSpec spec;
  TRY_ASSIGN(spec.image, reader.text());
  TRY_ASSIGN(spec.name, reader.text());
  TRY_ASSIGN(spec.directory, reader.text());
  TRY_ASSIGN(spec.name_flag, reader.enumeration(NameFlag::no_exec));
  TRY_ASSIGN(spec.save, reader.text());
  TRY_ASSIGN(const size_t mounts, reader.number());
  for (size_t i = 0; i < mounts; ++i) {
    TRY_ASSIGN(MountOption mount, read_mount(reader));
    spec.mounts.push_back(std::move(mount));
  }
  TRY_ASSIGN(spec.workdir, reader.text());
  TRY_ASSIGN(spec.keep_env, reader.list());
  TRY_ASSIGN(spec.devices, reader.list());
  TRY_ASSIGN(spec.mount_home, reader.enumeration(Tristate::yes));
  TRY_ASSIGN(spec.remap_root, reader.enumeration(Tristate::yes));
  TRY_ASSIGN(spec.writable, reader.enumeration(Tristate::yes));
  TRY_ASSIGN(spec.entrypoint, reader.enumeration(Tristate::yes));
  for (bool* flag :
       {&spec.entrypoint_log, &spec.unshare.pid, &spec.unshare.net, &spec.unshare.ipc, &spec.unshare.uts}) {
    TRY_ASSIGN(*flag, reader.flag());
  }
  TRY_ASSIGN(const size_t columns, reader.number());
  TRY_ASSIGN(const size_t rows, reader.number());
  spec.terminal_columns = static_cast<uint32_t>(columns);
  spec.terminal_rows = static_cast<uint32_t>(rows);
  TRY(reader.finish());
  return spec;
}

}  // namespace situla
