#include <sys/utsname.h>
#include <unistd.h>

#include "hooks/bundle/start/start.hpp"
#include "hooks/doctor/probes.hpp"
#include "hooks/mount/image_mount.hpp"

namespace situla::bundle {
namespace {

std::string line(const std::string& what, const Result<void>& found, const std::string& otherwise) {
  std::string text = what + std::string(what.size() < 34 ? 34 - what.size() : 0, ' ') + ": ";
  if (found) return text + "OK\n";
  return text + "KO (" + otherwise + "): " + found.error().message() + "\n";
}

}  // namespace

bool verify_machine(std::string& report) {
  utsname machine{};
  (void)uname(&machine);
  report = std::string("Kernel version: ") + machine.release + " " + machine.machine + "\n\n";
  const doctor::Ordinary user{geteuid(), getegid(), false};
  const Result<void> namespaces = doctor::try_user_namespace(user);
  const Result<void> overlay = doctor::try_overlay(user);
  report += line("User namespaces", namespaces, "required");
  report += line("Overlays in user namespaces", overlay, "required");
  report += line("FUSE for users (/dev/fuse)", fuse_available(), "optional, else every start extracts the image");
  return namespaces && overlay;
}

}  // namespace situla::bundle
