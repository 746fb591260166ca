// Which words may stand among the flags of a mount, and what does each of them say?
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace situla {

enum class MountMeaning : uint8_t {
  // Attributes of the mount.
  read_only,
  no_suid,
  no_dev,
  no_exec,
  no_atime,
  no_symfollow,
  // Its propagation.
  private_mount,
  slave,
  shared,
  unbindable,
  superblock,  ///< a flag of a new file system, fsconfig(2); it says nothing of other mounts
  other,       ///< what is done, or how ("bind", "x-move", "nofail"); or it does nothing to a mount made here
};

struct MountWord {
  std::string_view word;
  MountMeaning meaning = MountMeaning::other;
  bool value = true;       ///< of an attribute: false takes it away ("rw")
  bool recursive = false;  ///< of propagation: everything below as well
};

/// mount(8), fstab(5), and the x- words of COMPAT.md 6. The attributes of whole trees ("rro") are the OCI runtime
/// specification's; attributes are always of the whole tree here. What is likely comes first: of words that are equally
/// near to an unknown one the first is meant.
inline constexpr auto kMountWords = std::to_array<MountWord>({
    {"x-move"},
    {"x-detach"},
    {"x-create=auto"},
    {"x-create=dir"},
    {"x-create=file"},
    {"sqsh"},
    {"image"},
    {"ro", MountMeaning::read_only},
    {"rw", MountMeaning::read_only, false},
    {"nosuid", MountMeaning::no_suid},
    {"suid", MountMeaning::no_suid, false},
    {"nodev", MountMeaning::no_dev},
    {"dev", MountMeaning::no_dev, false},
    {"noexec", MountMeaning::no_exec},
    {"exec", MountMeaning::no_exec, false},
    {"noatime", MountMeaning::no_atime},
    {"atime", MountMeaning::no_atime, false},
    {"nosymfollow", MountMeaning::no_symfollow},
    {"symfollow", MountMeaning::no_symfollow, false},
    {"rro", MountMeaning::read_only},
    {"rnosuid", MountMeaning::no_suid},
    {"rnodev", MountMeaning::no_dev},
    {"rnoexec", MountMeaning::no_exec},
    {"rnoatime", MountMeaning::no_atime},
    {"rnosymfollow", MountMeaning::no_symfollow},
    {"private", MountMeaning::private_mount},
    {"rprivate", MountMeaning::private_mount, true, true},
    {"slave", MountMeaning::slave},
    {"rslave", MountMeaning::slave, true, true},
    {"shared", MountMeaning::shared},
    {"rshared", MountMeaning::shared, true, true},
    {"unbindable", MountMeaning::unbindable},
    {"runbindable", MountMeaning::unbindable, true, true},
    {"defaults"},
    {"auto"},
    {"noauto"},
    {"nofail"},
    {"silent"},
    {"loud"},
    {"group"},
    {"nogroup"},
    {"owner"},
    {"noowner"},
    {"user"},
    {"nouser"},
    {"users"},
    {"nousers"},
    {"relatime"},
    {"norelatime"},
    // These and iversion cannot be set through mount_setattr(2) on every kernel we support, and change nothing that a
    // program can do.
    {"diratime"},
    {"nodiratime"},
    {"mand"},
    {"nomand"},
    {"async"},
    {"bind"},
    {"iversion"},
    {"noiversion"},
    {"strictatime"},
    {"nostrictatime"},
    {"nolazytime"},
    {"rbind"},
    {"remount"},
    {"sync", MountMeaning::superblock},
    {"dirsync", MountMeaning::superblock},
    {"lazytime", MountMeaning::superblock},
});

/// "subpath=PATH": of an image only what is there.
constexpr std::string_view kSubpath = "subpath=";

/// nullptr: none of them. Other words that begin with "x-" are somebody else's, and known to nobody.
constexpr const MountWord* find_mount_word(std::string_view word) {
  const auto* const found =
      std::find_if(kMountWords.begin(), kMountWords.end(), [&](const MountWord& each) { return each.word == word; });
  return found == kMountWords.end() ? nullptr : found;
}

}  // namespace situla
