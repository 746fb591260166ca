#include "common/sys/mount/dm_device.hpp"

#include <cstddef>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/scope_exit.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

constexpr const char* kControl = "/dev/mapper/control";
constexpr const char* kTarget = "linear";
constexpr std::string_view kIdentity = "SITULA-";  // every uuid of ours begins so: names alone may be anybody's
constexpr size_t kAnswerBytes = size_t{64} << 10U;

/// One question: the fixed part, then what belongs to it. The answer takes its place.
class Question {
 public:
  explicit Question(std::string_view name, uint32_t flags = 0) : bytes_(sizeof(dm_ioctl)) {
    dm_ioctl head{};
    head.version[0] = DM_VERSION_MAJOR;
    head.flags = flags;
    (void)name.copy(head.name, sizeof head.name - 1);
    put(head);
  }

  void identify(std::string_view uuid) {
    dm_ioctl changed = head();
    (void)uuid.copy(changed.uuid, sizeof changed.uuid - 1);
    put(changed);
  }

  void add_target(uint64_t first, uint64_t sectors, const std::string& parameters) {
    const size_t begin = bytes_.size();
    const size_t text = begin + sizeof(dm_target_spec);
    const size_t end = (text + parameters.size() + 1 + 7) / 8 * 8;
    dm_target_spec target{};
    target.sector_start = first;
    target.length = sectors;
    target.next = static_cast<uint32_t>(end - begin);
    (void)std::string_view(kTarget).copy(target.target_type, sizeof target.target_type - 1);
    bytes_.resize(end);
    std::memcpy(bytes_.data() + begin, &target, sizeof target);
    std::memcpy(bytes_.data() + text, parameters.data(), parameters.size());
    dm_ioctl changed = head();
    ++changed.target_count;
    put(changed);
  }

  void expect(size_t answer_bytes) { bytes_.resize(sizeof(dm_ioctl) + answer_bytes); }

  [[nodiscard]] bool ask(int control, unsigned long request) {
    dm_ioctl changed = head();
    changed.data_size = static_cast<uint32_t>(bytes_.size());
    changed.data_start = sizeof changed;
    put(changed);
    return ioctl(control, request, bytes_.data()) == 0;
  }

  [[nodiscard]] dm_ioctl head() const {
    dm_ioctl head{};
    std::memcpy(&head, bytes_.data(), sizeof head);
    return head;
  }
  /// What follows the fixed part of an answer.
  [[nodiscard]] std::string_view answer() const {
    const size_t begin = head().data_start, end = head().data_size;
    if (begin > end || end > bytes_.size()) return {};
    return {bytes_.data() + begin, end - begin};
  }

 private:
  void put(const dm_ioctl& head) { std::memcpy(bytes_.data(), &head, sizeof head); }
  std::vector<char> bytes_;
};

Result<UniqueFd> open_control() {
  auto control = open_file(kControl, O_RDWR);
  if (control) return control;
  return fail(Error(ErrorKind::unsupported, control.error().message())
                  .with_code(ErrorCode::kernel)
                  .with_hint("modprobe dm-mod"));
}

/// /dev/dm-N may not exist yet, as LoopDevice's.
Result<UniqueFd> open_device(const std::string& path, dev_t number) {
  auto fd = open_file(path, O_RDONLY);
  if (fd || fd.error().errnum() != ENOENT) return fd;
  if (mknod(path.c_str(), S_IFBLK | 0600, number) != 0 && errno != EEXIST) return fail_errno(errno, "create " + path);
  return open_file(path, O_RDONLY);
}

/// The kernel's long form of a device number (new_encode_dev).
dev_t decode_device(uint64_t number) {
  const auto bits = static_cast<uint32_t>(number);
  return makedev((bits & 0xfff00U) >> 8U, (bits & 0xffU) | ((bits >> 12U) & 0xfff00U));
}

Result<void> load(int control, const std::string& name, const std::vector<DmPiece>& pieces) {
  Question table(name, DM_READONLY_FLAG);
  uint64_t first = 0;
  for (const DmPiece& piece : pieces) {
    struct stat device {};
    if (fstat(piece.device, &device) != 0) return fail_errno(errno, "stat a block device");
    table.add_target(first, piece.sectors,
                     std::to_string(major(device.st_rdev)) + ":" + std::to_string(minor(device.st_rdev)) + " " +
                         std::to_string(piece.first));
    first += piece.sectors;
  }
  if (!table.ask(control, DM_TABLE_LOAD)) return fail_errno(errno, "load the table of a device-mapper device");
  // This is how a table begins to count.
  if (!Question(name, DM_READONLY_FLAG).ask(control, DM_DEV_SUSPEND))
    return fail_errno(errno, "start a device-mapper device");
  return {};
}

}  // namespace

Result<DmDevice> DmDevice::make(const std::string& prefix, const std::vector<DmPiece>& pieces) {
  TRY_ASSIGN(const UniqueFd control, open_control());
  const std::string name = random_name(prefix);
  Question created(name);
  created.identify(random_name(kIdentity));
  if (!created.ask(control.get(), DM_DEV_CREATE)) return fail_errno(errno, "make a device-mapper device");
  // At once if nobody has it open, else with its last user.
  const ScopeExit remove([&] { (void)Question(name, DM_DEFERRED_REMOVE).ask(control.get(), DM_DEV_REMOVE); });
  TRY(load(control.get(), name, pieces));
  const dev_t number = decode_device(created.head().dev);
  std::string path = "/dev/dm-" + std::to_string(minor(number));
  TRY_ASSIGN(UniqueFd device, open_device(path, number));
  return DmDevice(std::move(path), std::move(device));
}

void DmDevice::remove_unused(const std::string& prefix) {
  const auto control = open_control();
  if (!control) return;
  Question list("");
  list.expect(kAnswerBytes);
  if (!list.ask(control->get(), DM_LIST_DEVICES)) return;
  for (std::string_view rest = list.answer(); rest.size() > offsetof(dm_name_list, name);) {
    uint32_t next = 0;
    std::memcpy(&next, rest.data() + offsetof(dm_name_list, next), sizeof next);
    std::string_view name = rest.substr(offsetof(dm_name_list, name));
    name = name.substr(0, name.find('\0'));
    Question status(name);
    const bool ours = name.starts_with(prefix) && status.ask(control->get(), DM_DEV_STATUS) &&
                      std::string_view(status.head().uuid).starts_with(kIdentity);
    if (ours) (void)Question(name).ask(control->get(), DM_DEV_REMOVE);  // EBUSY for one that is open
    if (next == 0 || next >= rest.size()) return;
    rest.remove_prefix(next);
  }
}

Result<void> dm_available() {
  TRY_ASSIGN(const UniqueFd control, open_control());
  Question versions("");
  versions.expect(kAnswerBytes);
  if (!versions.ask(control.get(), DM_LIST_VERSIONS)) return fail_errno(errno, "ask device-mapper for its targets");
  if (versions.answer().find(kTarget) != std::string_view::npos) return {};
  return fail(Error(ErrorKind::unsupported, "device-mapper has no target linear").with_code(ErrorCode::kernel));
}

}  // namespace situla
