// How does something come to a place beneath the root, and to no other? The place is made where it lacks, opened once,
// mounted on by descriptor, and afterwards found again by its path: if somebody renamed meanwhile, it is taken away.
#pragma once

#include "hooks/mount/image_mount.hpp"
#include "hooks/mount/source.hpp"

namespace situla {

/// The target of the step as it is, open.
Result<UniqueFd> find_place(const MountStep& step, const ApplyTarget& target);
/// The same to mount on. It is made as create says, for devices always, as a directory for a directory.
Result<UniqueFd> open_place(const MountStep& step, const ApplyTarget& target, bool directory);

/// cover, filesystem.
Result<void> place_file_system(const MountStep& step, const ApplyTarget& target);
/// image: its file is opened with the caller's rights, and given to the server (MountedImages::give).
Result<uint64_t> give_image(const MountStep& step, const ApplyTarget& target, MountedImages& images);
/// image of a registry that the kernel has mounted: its part, whose links are followed within it.
Result<ImagePart> part_of_mounted(const MountStep& step);
/// image: what the server shows of it, or that part.
Result<void> place_image(const ImagePart& part, const MountStep& step, const ApplyTarget& target);
/// host_file, device, bind. Nothing to do for a device's step where the same file, or a usable node of the same device,
/// is already.
Result<void> place_bind(const MountSource& source, const MountStep& step, const ApplyTarget& target);

}  // namespace situla
