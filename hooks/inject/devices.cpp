#include <array>
#include <climits>

#include <unistd.h>

#include "hooks/inject/hooks.hpp"
#include "hooks/mount/fstab.hpp"

namespace situla {
namespace {

constexpr const char* kOrigin = "built-in hook devices";

constexpr std::array<const char*, 9> kDevices = {
    "none         /dev            none    x-detach,nofail,silent",
    "tmpfs        /dev            tmpfs   x-create=dir,rw,nosuid,noexec,mode=755,slave",
    "/dev/zero    /dev/zero       none    x-create=file,bind,rw,nosuid,noexec,private",
    "/dev/null    /dev/null       none    x-create=file,bind,rw,nosuid,noexec,private",
    "/dev/full    /dev/full       none    x-create=file,bind,rw,nosuid,noexec,private",
    "/dev/urandom /dev/urandom    none    x-create=file,bind,rw,nosuid,noexec,private",
    "/dev/random  /dev/random     none    x-create=file,bind,rw,nosuid,noexec,private",
    "devpts       /dev/pts        devpts  x-create=dir,rw,nosuid,noexec,newinstance,ptmxmode=0666,mode=620,slave",
    "/dev/tty     /dev/tty        none    x-create=file,bind,rw,nosuid,noexec,private"};

constexpr std::array<const char*, 2> kSharedMemory = {
    "/dev/shm     /dev/shm        none    x-create=dir,bind,rw,nosuid,noexec,nodev,rslave,nofail,silent",
    "/dev/mqueue  /dev/mqueue     none    x-create=dir,bind,rw,nosuid,noexec,nodev,rslave,nofail,silent"};

constexpr std::array<const char*, 2> kOwnSharedMemory = {
    "tmpfs        /dev/shm        tmpfs   x-create=dir,rw,nosuid,noexec,nodev,mode=1777",
    "mqueue       /dev/mqueue     mqueue  x-create=dir,rw,nosuid,noexec,nodev"};

constexpr std::array<const char*, 2> kOptional = {
    "/dev/hugepages /dev/hugepages none   x-create=dir,bind,rw,nosuid,noexec,nodev,rslave,nofail,silent",
    "/dev/log     /dev/log        none    x-create=file,bind,rw,nosuid,noexec,nodev,private,nofail,silent"};

template <typename Lines>
Result<void> add(const Lines& lines, std::vector<MountStep>& steps) {
  for (const char* line : lines) {
    TRY_ASSIGN(FstabEntry entry, parse_fstab_line(line, kOrigin));
    steps.push_back(std::move(entry.step));
  }
  return {};
}

/// The user's terminal keeps a name although the container has pseudo terminals of its own.
Result<void> add_console(std::vector<MountStep>& steps) {
  std::array<char, PATH_MAX> terminal{};
  if (ttyname_r(STDIN_FILENO, terminal.data(), terminal.size()) != 0) return {};
  MountFields fields;
  fields.source = terminal.data();
  fields.target = "/dev/console";
  fields.type = "none";
  fields.options = {"x-create=file", "bind", "rw", "nosuid", "noexec", "private"};
  TRY_ASSIGN(MountStep step, make_step(fields, kOrigin));
  steps.push_back(std::move(step));
  return {};
}

}  // namespace

Result<Proposal> devices_hook(const InjectContext& context) {
  Proposal proposal;
  if (!context.restrict_devices && !context.own_ipc) return proposal;
  TRY(add(kDevices, proposal.mounts_at_once));
  TRY(add(context.own_ipc ? kOwnSharedMemory : kSharedMemory, proposal.mounts_at_once));
  TRY(add(kOptional, proposal.mounts_at_once));
  TRY(add_console(proposal.mounts_at_once));
  constexpr std::array<std::pair<const char*, const char*>, 5> kLinks = {{{"/dev/fd", "/proc/self/fd"},
                                                                          {"/dev/ptmx", "/dev/pts/ptmx"},
                                                                          {"/dev/stdin", "/proc/self/fd/0"},
                                                                          {"/dev/stdout", "/proc/self/fd/1"},
                                                                          {"/dev/stderr", "/proc/self/fd/2"}}};
  for (const auto& [path, target] : kLinks) proposal.files.push_back({FileChange::Kind::link, path, target, 0777});
  return proposal;
}

}  // namespace situla
