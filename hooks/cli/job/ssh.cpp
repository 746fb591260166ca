// ssh: a door into a running job's container for ssh, scp, sftp and editors. As ProxyCommand it begins a step beside
// the job's, in which the host's sshd, as the user, serves this one connection over standard input and output.
#include <array>
#include <cerrno>
#include <csignal>
#include <ostream>

#include <fcntl.h>
#include <poll.h>
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

Result<std::string> run_keygen(std::vector<std::string> words) {
  SpawnOptions options;
  options.program = find_program("ssh-keygen", "/usr/local/bin:/usr/bin:/bin");
  if (options.program.empty())
    return fail(Error(ErrorKind::not_found, "there is no ssh-keygen here")
                    .with_code(ErrorCode::installation)
                    .with_hint("it comes with OpenSSH's client"));
  options.arguments = std::move(words);
  options.arguments.insert(options.arguments.begin(), "ssh-keygen");
  constexpr std::chrono::seconds kLimit{30};
  TRY_ASSIGN(ProgramRun run, run_program(std::move(options), {.time = kLimit, .error_bytes = 1024}));
  if (!run.success()) return fail(ErrorKind::failure, "ssh-keygen: " + excerpt(trim(run.errors)));
  return std::move(run.output);
}

/// Whole or not at all: several connections may begin at once. Of two the first one's key stays, and the public one is
/// always made of that.
Result<void> make_key(const PrivateDirectory& directory, const std::string& name) {
  if (faccessat(directory.fd(), name.c_str(), F_OK, 0) != 0) {
    const std::string temporary = random_name("." + name + ".");
    TRY(run_keygen({"-q", "-t", "ed25519", "-N", "", "-C", "situla", "-f", directory.path(temporary)}));
    const bool linked = linkat(directory.fd(), temporary.c_str(), directory.fd(), name.c_str(), 0) == 0;
    const int errnum = errno;
    (void)unlinkat(directory.fd(), temporary.c_str(), 0);
    (void)unlinkat(directory.fd(), (temporary + ".pub").c_str(), 0);
    if (!linked && errnum != EEXIST) return fail_errno(errnum, "make " + directory.path(name));
  }
  if (faccessat(directory.fd(), (name + ".pub").c_str(), F_OK, 0) == 0) return {};
  TRY_ASSIGN(const std::string of_it, run_keygen({"-y", "-f", directory.path(name)}));
  return write_file_atomically(directory.path(name + ".pub"), of_it, 0600);
}

/// The keys of the user's: whom sshd is for the client, and who the client is for sshd. They have to be the same where
/// jobs are submitted and on the nodes, which they are in a home directory that all have.
Result<PrivateDirectory> keys_of(const Context& context) {
  TRY_ASSIGN(PrivateDirectory directory, PrivateDirectory::open_or_make(directory_of(context), ""));
  for (const char* name : kKeys) TRY(make_key(directory, name));
  return directory;
}

/// The name comes from who calls ssh, and goes through a shell: within quotes, and without such a quote. %h, since
/// OpenSSH before 8.1 knows no %n there.
std::string config_text(const PrivateDirectory& keys) {
  const std::string prefix(kHostPrefix);
  return "# ssh situla-JOB: a shell in the container of that job; scp, sftp and editors likewise.\n"
         "Host " +
         prefix +
         "* \"!*'*\"\n"
         "  ProxyCommand situla ssh '%h'\n"
         "  HostKeyAlias situla\n"
         "  UserKnownHostsFile " +
         keys.path("known_hosts") +
         "\n"
         "  IdentityFile " +
         keys.path("user_key") +
         "\n"
         "  IdentitiesOnly yes\n";
}

Result<int> print_config(const Context& context) {
  TRY_ASSIGN(const PrivateDirectory keys, keys_of(context));
  TRY_ASSIGN(const std::string host_key, read_file(keys.held("host_key.pub"), 4096));
  TRY(write_file_atomically(keys.path("known_hosts"), "situla " + host_key, 0600));
  const std::string text = config_text(keys);
  TRY(write_file_atomically(keys.path("config"), text, 0600));
  context.streams.out << text;
  return 0;
}

/// What sessions have left running, such as an editor's server, is of this step, which ends with this process: it stays
/// for as long as there is any.
Result<int> stay_for_all(const SpawnOptions& program) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail_errno(errno, "look after what is left running");
  TRY_ASSIGN(Child sshd, spawn(program));
  // A client that leaves is an error for sshd; for the step it is the usual end.
  TRY(sshd.wait());
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)close(stream);
  while (wait(nullptr) >= 0 || errno == EINTR) {
  }
  return 0;
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
  const Environment& host = context.invocation.environment;
  const std::string home = host.get_or("HOME", "/");
  for (const std::string& path : {keys.path(), steps, home, std::string(program_path())})
    if (path.find_first_of(" \"'\\%\t\n") != std::string::npos)
      return fail(
          Error(ErrorKind::unsupported, "sshd cannot be given the path " + printable(path))
              .with_code(ErrorCode::option)
              .with_hint("blanks, quotes, \\ and % mean something in its options: set XDG_CONFIG_HOME elsewhere"));
  // Nothing of the node's own configuration, which is root's daemon's. No port is listened on for who connects.
  sshd.arguments = {sshd.program, "-i", "-e", "-f", "/dev/null"};
  for (const std::string& option :
       {"HostKey=" + keys.path("host_key"),
        "AuthorizedKeysFile=" + keys.path("user_key.pub") + " " + home + "/.ssh/authorized_keys",
        std::string("AuthenticationMethods=publickey"), std::string("UsePAM=no"), std::string("PidFile=none"),
        std::string("LogLevel=ERROR"),
        // Who gets here has come by a step of the user's own.
        std::string("StrictModes=no"), std::string("PermitUserRC=no"), std::string("AllowTcpForwarding=local"),
        std::string("AllowStreamLocalForwarding=local"), std::string("AllowAgentForwarding=no"),
        std::string("X11Forwarding=no"), std::string("PrintMotd=no"), std::string("PrintLastLog=no"),
        std::string("Subsystem=sftp ") + kSftp,
        "ForceCommand=" + std::string(program_path()) + " ssh --inside " + steps})
    sshd.arguments.insert(sshd.arguments.end(), {"-o", option});
  // What modules and tools put there (LD_LIBRARY_PATH) is not for sshd.
  for (const char* name : {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG"})
    if (const auto value = host.get(name)) sshd.environment.push_back(std::string(name) + "=" + std::string(*value));
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

/// What a child says on its standard error, until it has ended. Its exit code.
Result<int> pass_on_until_end(Child& child, int said) {
  std::array<char, 4096> buffer{};
  // Without pidfds (before Linux 5.3) it is looked at now and then.
  const int patience = child.pidfd() >= 0 ? -1 : 500;
  while (true) {
    std::array<pollfd, 2> entries = {{{said, POLLIN, 0}, {child.pidfd(), POLLIN, 0}}};
    if (poll(entries.data(), entries.size(), patience) < 0 && errno != EINTR) return fail_errno(errno, "wait for srun");
    // All that it has said comes before its end.
    if ((entries[0].revents & POLLIN) != 0) {
      const ssize_t size = read(said, buffer.data(), buffer.size());
      if (size > 0) (void)write_all(STDERR_FILENO, std::string_view(buffer.data(), static_cast<size_t>(size)));
      continue;
    }
    TRY_ASSIGN(const auto status, child.wait_for(std::chrono::milliseconds(0)));
    if (status) return status->signal == 0 ? status->code : 1;
  }
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
  // It may outlive ssh, whose caller waits for who has ssh's standard error: what srun says goes through here. It holds
  // the other end of that pipe itself, so that nothing ends it when nobody reads there any more.
  TRY_ASSIGN(auto said, make_pipe());
  constexpr int kOtherEnd = 3;
  srun.fds.back() = {said.second.get(), STDERR_FILENO};
  srun.fds.emplace_back(said.first.get(), kOtherEnd);
  context.streams.out.flush();
  TRY_ASSIGN(Child child, spawn(srun));
  said.second.reset();
  return pass_on_until_end(child, said.first.get());
}

}  // namespace

void add_ssh(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "ssh",
                  "For ssh's ProxyCommand, into the container of a running job: ssh [OPTIONS] JOB[.STEP]", ssh);
  command.pass_words_on();
  command.option("-w,--node", options.node, "Node of the step (default: its first)").value("NODE");
  command.flag("--config", options.config, "Print what belongs into ~/.ssh/config, and make the keys");
  command.option("--serve", options.serve).hidden();
  command.option("--inside", options.inside).hidden();
}

}  // namespace situla::cli
