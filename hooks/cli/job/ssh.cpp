// ssh: a door into a running job's container for ssh, scp, sftp and editors. As ProxyCommand it begins a step beside
// the job's, in which the host's sshd, as the user, serves this one connection over standard input and output.
#include <array>
#include <cerrno>
#include <csignal>
#include <ostream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/private_directory.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/job/job_steps.hpp"
#include "hooks/cli/job/sftp.hpp"
#include "hooks/run/attach.hpp"

namespace situla::cli {
namespace {

struct SshOptions {
  std::string node;
  bool config = false;
  std::string serve;   ///< on the node, outside of the container
  std::string inside;  ///< by sshd, for each session
};

constexpr std::string_view kHostPrefix = "situla-";  ///< of the names that ssh_config gives to jobs
constexpr const char* kSftp = "situla-sftp";         ///< the command that sshd runs for sftp
constexpr std::array<const char*, 2> kKeys = {"host_key", "user_key"};

std::string directory_of(const Context& context) {
  const Environment& host = context.invocation.environment;
  const std::string base = host.get_or("XDG_CONFIG_HOME", "");
  return (base.starts_with('/') ? base : host.get_or("HOME", "") + "/.config") + "/situla/ssh";
}

/// Whole or not at all: several connections may begin at once.
Result<void> make_key(const PrivateDirectory& directory, const std::string& name) {
  if (faccessat(directory.fd(), name.c_str(), F_OK, 0) == 0) return {};
  const std::string temporary = random_name("." + name + ".");
  SpawnOptions options;
  options.program = find_program("ssh-keygen", "/usr/local/bin:/usr/bin:/bin");
  if (options.program.empty())
    return fail(Error(ErrorKind::not_found, "there is no ssh-keygen here")
                    .with_code(ErrorCode::installation)
                    .with_hint("it comes with OpenSSH's client"));
  options.arguments = {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "situla", "-f", directory.path(temporary)};
  constexpr std::chrono::seconds kLimit{30};
  TRY_ASSIGN(const ProgramRun run, run_program(std::move(options), {.time = kLimit, .error_bytes = 1024}));
  if (!run.success()) return fail(ErrorKind::failure, "ssh-keygen: " + excerpt(trim(run.errors)));
  // Who comes second takes what the first has made.
  const auto move = [&](const std::string& ending) -> Result<void> {
    if (linkat(directory.fd(), (temporary + ending).c_str(), directory.fd(), (name + ending).c_str(), 0) != 0 &&
        errno != EEXIST)
      return fail_errno(errno, "make " + directory.path(name + ending));
    (void)unlinkat(directory.fd(), (temporary + ending).c_str(), 0);
    return {};
  };
  TRY(move(".pub"));
  return move("");
}

/// The keys of the user's: whom sshd is for the client, and who the client is for sshd. They have to be the same where
/// jobs are submitted and on the nodes, which they are in a home directory that all have.
Result<PrivateDirectory> keys_of(const Context& context) {
  TRY_ASSIGN(PrivateDirectory directory, PrivateDirectory::open_or_make(directory_of(context), ""));
  for (const char* name : kKeys) TRY(make_key(directory, name));
  TRY_ASSIGN(const std::string host_key, read_file(directory.held("host_key.pub"), 4096));
  TRY(write_file_atomically(directory.path("known_hosts"), "situla " + host_key, 0600));
  return directory;
}

Result<int> print_config(const Context& context) {
  TRY_ASSIGN(const PrivateDirectory keys, keys_of(context));
  context.streams.out << "# ssh situla-JOB: a shell in the container of that job; scp, sftp and editors likewise.\n"
                      << "Host " << kHostPrefix << "*\n"
                      << "  ProxyCommand situla ssh %n\n"
                      << "  HostKeyAlias situla\n"
                      << "  UserKnownHostsFile " << keys.path("known_hosts") << "\n"
                      << "  IdentityFile " << keys.path("user_key") << "\n";
  return 0;
}

/// What sessions have left running, such as an editor's server, is of this step, which ends with this process: it stays
/// for as long as there is any.
Result<int> stay_for_all(const SpawnOptions& program) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_errno(errno, "look after what is left running");
  TRY_ASSIGN(Child sshd, spawn(program));
  const auto status = sshd.wait();
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)close(stream);
  while (wait(nullptr) >= 0 || errno == EINTR) {
  }
  return status.map([](const ExitStatus& ended) { return ended.success() ? 0 : 1; });
}

/// On the node, in the step beside the job's.
Result<int> serve(const Context& context, const std::string& steps) {
  TRY_ASSIGN(const PrivateDirectory keys, keys_of(context));
  SpawnOptions sshd;
  sshd.program = find_program("sshd", "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin");
  if (sshd.program.empty())
    return fail(Error(ErrorKind::not_found, "this node has no sshd")
                    .with_code(ErrorCode::installation)
                    .with_hint("install OpenSSH's server; it need not run"));
  for (const std::string& path : {keys.path(), steps})
    if (path.find_first_of(" \"'\\%\t\n") != std::string::npos)
      return fail(ErrorKind::unsupported, "sshd cannot be given the path " + printable(path));
  const std::string home = context.invocation.environment.get_or("HOME", "/");
  // Nothing of the node's own configuration, which is root's daemon's. No port is listened on for who connects.
  sshd.arguments = {sshd.program, "-i", "-e", "-q", "-f", "/dev/null"};
  for (const std::string& option :
       {"HostKey=" + keys.path("host_key"),
        "AuthorizedKeysFile=" + keys.path("user_key.pub") + " " + home + "/.ssh/authorized_keys",
        std::string("AuthenticationMethods=publickey"), std::string("UsePAM=no"), std::string("PidFile=none"),
        std::string("StrictModes=yes"), std::string("PermitUserRC=no"), std::string("AllowTcpForwarding=local"),
        std::string("AllowStreamLocalForwarding=local"), std::string("AllowAgentForwarding=no"),
        std::string("X11Forwarding=no"), std::string("PrintMotd=no"), std::string("PrintLastLog=no"),
        std::string("Subsystem=sftp ") + kSftp,
        "ForceCommand=" + std::string(program_path()) + " ssh --inside " + steps})
    sshd.arguments.insert(sshd.arguments.end(), {"-o", option});
  sshd.environment = context.invocation.environment.strings();
  sshd.fds = {{STDIN_FILENO, STDIN_FILENO}, {STDOUT_FILENO, STDOUT_FILENO}, {STDERR_FILENO, STDERR_FILENO}};
  return stay_for_all(sshd);
}

/// sshd's session: what the client asked for, in the container.
Result<int> run_inside(const Context& context, const std::string& steps) {
  const Environment& session = context.invocation.environment;
  ExecRequest request;
  TRY_ASSIGN(request.pid, process_to_join(steps));
  request.host = session;
  for (const char* name : {"TERM", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY"})
    if (session.has(name)) request.environment.emplace_back(name);
  const std::string wanted = session.get_or("SSH_ORIGINAL_COMMAND", "");
  if (wanted == kSftp) {
    TRY_ASSIGN(request.command, bring_sftp_server(request.pid));
  } else {
    request.command = {"sh", "-c", wanted.empty() ? kShellInside : wanted};
  }
  return exec_in_container(request);
}

Result<int> ssh(const Context& context, const SshOptions& options) {
  if (!options.inside.empty()) return run_inside(context, options.inside);
  if (!options.serve.empty()) return serve(context, options.serve);
  if (options.config) return print_config(context);
  TRY(check_words(context, "ssh", 1, "JOB is"));
  std::string job = context.words.front();
  if (job.starts_with(kHostPrefix)) job.erase(0, kHostPrefix.size());
  TRY(keys_of(context));
  TRY_ASSIGN(const JobPlace place, find_job(context, "ssh", job, options.node));
  // Bytes as they are, and at once.
  TRY_ASSIGN(SpawnOptions srun,
             step_beside(context, place, {"--unbuffered", "--quiet"}, {"situla", "ssh", "--serve", place.steps}));
  // ssh ends its ProxyCommand by a signal when the connection ends. srun would end the step by it, and what still runs
  // there: for it, the end of its input is the end.
  srun.new_session = true;
  context.streams.out.flush();
  TRY_ASSIGN(Child child, spawn(srun));
  TRY_ASSIGN(const ExitStatus status, child.wait());
  return status.signal == 0 ? status.code : 1;
}

}  // namespace

void add_ssh(CLI::App& app, Actions& actions) {
  const auto [command, options] =
      add_command(app, actions, "ssh",
                  "For ssh's ProxyCommand, into the container of a running job: ssh [OPTIONS] JOB[.STEP]", ssh);
  command.prefix_command();
  command.add_option("-w,--node", options.node, "Node of the step (default: its first)")->type_name("NODE");
  command.add_flag("--config", options.config, "Print what belongs into ~/.ssh/config, and make the keys");
  command.add_option("--serve", options.serve)->group("");
  command.add_option("--inside", options.inside)->group("");
}

}  // namespace situla::cli
