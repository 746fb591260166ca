#include "hooks/cli/job/sftp.hpp"

#include <array>
#include <cerrno>
#include <optional>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/run/attach.hpp"

namespace situla::cli {
namespace {

constexpr const char* kInside = "/var/run/situla-sftp";
constexpr mode_t kProgramMode = 0700;
/// Where distributions have it.
constexpr std::array<const char*, 4> kServers = {"/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server",
                                                 "/usr/lib/ssh/sftp-server", "/usr/libexec/sftp-server"};

struct HostFile {
  std::string name, content;
};

Result<std::string> find_server() {
  for (const char* path : kServers)
    if (access(path, X_OK) == 0) return std::string(path);
  return fail(Error(ErrorKind::not_found, "this node has no sftp-server")
                  .with_code(ErrorCode::installation)
                  .with_hint("it comes with the OpenSSH server (openssh-sftp-server, openssh-server)"));
}

/// What the dynamic linker would load (ld.so(8), LD_TRACE_LOADED_OBJECTS), itself included.
Result<std::vector<std::string>> libraries_of(const std::string& program) {
  SpawnOptions options;
  options.program = program;
  options.arguments = {program};
  options.environment = {"LD_TRACE_LOADED_OBJECTS=1"};
  constexpr std::chrono::seconds kLimit{10};
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = kLimit}));
  std::vector<std::string> paths;
  for (const std::string_view line : split_nonempty(run.output, '\n'))
    for (const std::string_view word : split_words(line))
      if (word.starts_with('/')) paths.emplace_back(word);
  // It looks the user up; older releases of glibc load a library for that.
  for (const std::string& path : std::vector<std::string>(paths))
    if (path.ends_with("/libc.so.6"))
      if (std::string more = path.substr(0, path.rfind('/')) + "/libnss_files.so.2"; access(more.c_str(), R_OK) == 0)
        paths.push_back(std::move(more));
  if (!run.success() || paths.empty())
    return fail(ErrorKind::failure, program + ": cannot tell what it is linked with");
  return paths;
}

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_loader(const std::string& name) {
  return name.starts_with("ld-") || name.starts_with("ld64.");
}

/// In the container: whole or not at all, for others may do the same at the same time.
Result<void> copy_into(const std::string& directory, const std::vector<HostFile>& files) {
  if (mkdir(directory.c_str(), kProgramMode) != 0 && errno != EEXIST)
    return fail_errno(errno, "make directory " + directory);
  for (const HostFile& file : files)
    if (const std::string path = directory + "/" + file.name; access(path.c_str(), F_OK) != 0)
      TRY(write_file_atomically(path, file.content, kProgramMode, Sync::no));
  return {};
}

}  // namespace

Result<std::vector<std::string>> bring_sftp_server(pid_t pid) {
  TRY_ASSIGN(const std::string server, find_server());
  TRY_ASSIGN(std::vector<std::string> paths, libraries_of(server));
  paths.push_back(server);
  std::vector<HostFile> files;
  std::string loader;
  for (const std::string& path : paths) {
    TRY_ASSIGN(std::string content, read_file(path));
    if (is_loader(file_name(path))) loader = file_name(path);
    files.push_back({file_name(path), std::move(content)});
  }
  if (loader.empty()) return fail(ErrorKind::failure, server + ": it has no dynamic linker");
  TRY_ASSIGN(const AttachTarget target, AttachTarget::open(pid));
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    const auto copied = target.join().and_then([&] { return copy_into(kInside, files); });
    if (!copied) (void)write_all(STDERR_FILENO, "situla: ssh: " + printable(copied.error().line()) + "\n");
    _exit(copied ? 0 : 1);
  }
  TRY_ASSIGN(const ExitStatus status, child.wait());
  if (!status.success()) return fail(ErrorKind::failure, "the sftp-server cannot be put into the container");
  const std::string inside = std::string(kInside) + "/";
  return std::vector<std::string>{inside + loader, "--library-path", kInside, inside + file_name(server), "-e"};
}

}  // namespace situla::cli
