#include "plugin/broker/launcher.hpp"

#include <initializer_list>

#include <fcntl.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::array<const char*, 8> kNames = {"situla-builder",   "situla-importer",   "situla-saver",
                                               "situla-inventory", "situla-store",      "situla-courier",
                                               "situla-recorder",  "situla-slurm-proxy"};
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

const char* name_of(Program program) {
  return kNames.at(static_cast<size_t>(program));
}

/// As trustworthy as the broker's own file, or more.
Result<UniqueFd> open_program(const std::string& path, const struct stat& own) {
  TRY_ASSIGN(UniqueFd fd, open_file(path, O_PATH));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return fail_errno(errno, "look at " + path);
  const bool trusted = (info.st_uid == 0 || info.st_uid == own.st_uid) && S_ISREG(info.st_mode) &&
                       (info.st_mode & kOthersMayWrite & ~own.st_mode) == 0;
  if (!trusted)
    return fail(Error(ErrorKind::denied, path + ": others than root may write to it")
                    .with_code(ErrorCode::installation)
                    .with_hint("chown root:root and chmod 755 it, or install Situla anew"));
  return fd;
}

/// Ends a forked child with its error told to the broker; `fds` are the places where the socket may be by now.
[[noreturn]] void exit_with(const Error& error, std::initializer_list<int> fds) {
  for (const int fd : fds)
    if (fd >= 0 && send_packet(fd, encode(Failure::of(error)))) _exit(1);
  syslog(LOG_ERR, "%s", error.message().c_str());
  _exit(1);
}

/// A child that is root still when its parent has become the user: it writes the maps of the user namespace that its
/// parent makes then.
class MapWriter {
 public:
  static Result<MapWriter> start(const IdMaps& maps) {
    TRY_ASSIGN(const UniqueFd parent, open_file("/proc/self", O_PATH | O_DIRECTORY));
    TRY_ASSIGN(auto sockets, socket_pair());
    TRY_ASSIGN(Child child, fork_child());
    if (!child) {
      sockets.first.reset();
      const auto write = [&]() -> Result<void> {
        TRY(die_with_parent());
        TRY_ASSIGN(const auto made, receive_packet(sockets.second.get(), 1));
        return made ? write_id_maps(parent.get(), maps) : fail(ErrorKind::cancelled, "");
      };
      const auto written = write();
      if (!written) (void)send_packet(sockets.second.get(), written.error().message());
      _exit(written ? 0 : 1);
    }
    return MapWriter(std::move(child), std::move(sockets.first));
  }

  /// The caller is the user.
  Result<void> enter() {
    TRY(unshare_namespaces(kUserNs));
    TRY(send_packet(line_.get(), "m"));
    TRY_ASSIGN(const auto status, child_.wait());
    if (status.success()) return keep_capabilities_over_exec();
    const auto why = receive_packet(line_.get(), kMaxMessageBytes);
    return fail(Error(ErrorKind::failure, why && *why ? (*why)->bytes : "the child " + status.text())
                    .with_context(phrase(RootOperation::write_id_maps)));
  }

 private:
  MapWriter(Child child, UniqueFd line) : child_(std::move(child)), line_(std::move(line)) {}
  Child child_;  // which ends by itself when nobody is there who could ask: first to come, last to go
  UniqueFd line_;
};

/// Forks, ends as its child ends, and returns in that.
Result<void> go_on_in_child() {
  TRY_ASSIGN(Child child, fork_child());
  if (!child) return die_with_parent();
  const auto status = child.wait();
  _exit(status && status->success() ? 0 : 1);
}

/// In the forked child; returns in one that is to execute the program.
Result<void> become_child(const Launch& what, bool born_there) {
  if (!born_there) TRY_CONTEXT(phrase(RootOperation::move_to_cgroup), move_to_cgroups(getpid(), what.place.text()));
  if (what.prepare) TRY(what.prepare());
  if (what.own_pid_namespace) {
    TRY(unshare_namespaces(kPidNs));
    TRY(die_with_parent());
    TRY(go_on_in_child());
    // The namespace's first process stays root's: one of the user's he could trace, and make it outlive its parent.
    TRY(go_on_in_child());
  }
  if (what.rights == Rights::root) return {};
  std::optional<MapWriter> maps;
  if (what.id_maps && what.rights == Rights::user) {
    TRY_ASSIGN(maps, MapWriter::start(*what.id_maps));
  }
  // The bounding set needs CAP_SETPCAP to be emptied, so it goes before the identity does.
  if (what.rights == Rights::service) TRY(drop_bounding_set());
  TRY(what.rights == Rights::reader ? become_keeping(what.who, kReadAnyFile) : become(what.who));
  if (what.rights == Rights::service) TRY(drop_all_capabilities());
  return maps ? maps->enter() : Result<void>();
}

}  // namespace

Result<Launcher> Launcher::open(Result<NodeCgroups> cgroups) {
  if (!cgroups) return fail(std::move(cgroups).error().with_context(phrase(RootOperation::own_cgroups)));
  struct stat own {};
  if (stat("/proc/self/exe", &own) != 0) return fail_errno(errno, "look at the broker's own program");
  Launcher launcher(std::move(*cgroups));
  for (size_t i = 0; i < kNames.size(); ++i) launcher.programs_.at(i) = open_program(libexec_path(kNames.at(i)), own);
  return launcher;
}

Result<Child> Launcher::launch(const Launch& what) const {
  const Result<UniqueFd>& program = programs_.at(static_cast<size_t>(what.program));
  if (!program) return fail(Error(program.error()).with_code(ErrorCode::installation));
  SpawnOptions options;
  options.program_fd = program->get();
  options.program = libexec_path(name_of(what.program));
  options.arguments = {name_of(what.program)};
  options.arguments.insert(options.arguments.end(), what.arguments.begin(), what.arguments.end());
  options.environment = {kPath};
  options.fds = what.fds;
  options.die_with_parent = what.die_with_parent;
  // Decided before the fork: the broker may move a child on at any time, and must not find it moving itself back.
  TRY_ASSIGN(const bool born_there, lives_in_cgroups(what.place.text()));
  TRY_ASSIGN(Child child, fork_child());
  if (child) return child;
  // The first descriptor is the socket, if there is one.
  const int report = what.fds.empty() ? -1 : what.fds.front().first;
  const int report_target = what.fds.empty() ? -1 : what.fds.front().second;
  if (auto done = become_child(what, born_there); !done) exit_with(done.error(), {report});
  if (chdir(what.directory.c_str()) == 0) options.directory = what.directory;
  exit_with(execute(options), {report, report_target});
}

Result<Helper> Launcher::launch_helper(Launch what, int number) const {
  TRY_ASSIGN(auto sockets, socket_pair());
  if (fcntl(sockets.first.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "prepare a socket");
  what.fds.insert(what.fds.begin(), {sockets.second.get(), number});
  TRY_ASSIGN(Child child, launch(what));
  return Helper{std::move(child), std::move(sockets.first)};
}

}  // namespace situla
