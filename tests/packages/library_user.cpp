// A program of somebody else's, made with nothing but situla.pc: what does an image name mean, what is in a squashfs
// file, and which mounts follow from an option? usage: library_user IMAGE FILE.sqsh MOUNT
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <string>

#include <fcntl.h>

#include <situla/common/base/unique_fd.hpp>
#include <situla/common/spec/image_reference.hpp>
#include <situla/hooks/import/import.hpp>
#include <situla/hooks/mount/fstab.hpp>
#include <situla/hooks/mount/plan.hpp>
#include <situla/hooks/unpack/read_image.hpp>

namespace {

using namespace situla;

Result<void> show_mounts(const std::string& text) {
  TRY_ASSIGN(std::vector<MountOption> options, parse_mount_options(text));
  MountPlan plan("/");
  for (MountOption& option : options) {
    option.origin = "the command line";
    TRY_ASSIGN(MountStep step, step_from_option(option, Environment()));
    TRY(plan.add(std::move(step)));
  }
  for (const MountStep& step : plan.steps()) std::cout << describe(step) << '\n';
  return {};
}

Result<void> show(const std::string& image, const std::string& file, const std::string& mount) {
  TRY_ASSIGN(const ImageReference reference, ImageReference::parse(image));
  std::cout << "registry " << reference.registry << ", repository " << reference.repository << '\n';
  const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + file);
  TRY_ASSIGN(const ImageInfo info, read_image_info(fd.get()));
  std::cout << info.compressor << ", " << info.inodes << " inodes\n";
  TRY_ASSIGN(const std::string name, read_image_file(fd.get(), "/etc/hostname"));
  std::cout << "hostname " << name;
  return show_mounts(mount);
}

/// Needs the part that knows registries to be there; nothing is asked of any.
Result<void> show_platform() {
  TRY_ASSIGN(const Platform platform, Platform::parse("aarch64"));
  std::cout << "platform " << platform.os << '/' << platform.architecture << '\n';
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  auto shown = show(argv[1], argv[2], argv[3]);
  if (shown) shown = show_platform();
  if (shown) return 0;
  std::cerr << shown.error().text() << '\n';
  return 1;
}
