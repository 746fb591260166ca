// digest: what a reference means now, as the digest of the manifest.
#include <ctime>
#include <ostream>

#include <fcntl.h>
#include <unistd.h>

#include "common/sys/process/process.hpp"
#include "common/sys/process/secrecy.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/request.hpp"
#include "hooks/import/import.hpp"
#include "hooks/sources/job_answers.hpp"

namespace situla::cli {
namespace {

struct DigestOptions : ImageArguments {
  bool index = false;
  std::string job, resolve;
};

Result<Digest> ask(const DigestOptions& options, const Context& context) {
  const KeepSecrets secrets;
  TRY_ASSIGN(const ImportRequest request, options.request(context));
  return options.index ? resolve_index_digest(request, context.log) : resolve_digest(request, context.log);
}

/// In a process that nobody waits for: what the name means by now, for who asks next.
void look_again(const DigestOptions& options, const Context& context, const JobAnswers& answers) {
  constexpr unsigned kLimit = 60;  // seconds
  auto child = fork_child();
  if (!child) return;
  if (*child) {
    (void)child->release();
    return;
  }
  (void)setsid();
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)dup2(nothing.get(), fd);
  alarm(kLimit);
  const auto digest = ask(options, context);
  // Another step may have said something meanwhile.
  auto current = answers.find(static_cast<uint64_t>(std::time(nullptr)));
  if (!digest || !current) _exit(0);
  if (*digest == current->digest)
    current->moved.reset();
  else if (*digest != current->moved)
    current->told = false;
  if (*digest != current->digest) current->moved = *digest;
  (void)answers.keep(*current);
  _exit(0);
}

/// For srun (plugin/pin.hpp): what an earlier step of the job was told. A second line is the digest that the name means
/// by now, once.
Result<int> digest_of_job(const DigestOptions& options, const Context& context) {
  constexpr uint64_t kPause = 60;  // seconds between two looks
  const auto now = static_cast<uint64_t>(std::time(nullptr));
  TRY_ASSIGN(const ResolveRule rule, options.resolve.empty()
                                         ? Result<ResolveRule>(load_site_config(context.log).resolve)
                                         : ResolveRule::parse(options.resolve));
  const JobName job{options.job, context.invocation.environment.get_or("SLURM_CONF", "") + "\n" +
                                     context.invocation.environment.get_or("SLURM_CLUSTERS", "") + "\n" +
                                     context.invocation.environment.get_or("SLURM_CLUSTER_NAME", "")};
  const auto answers = JobAnswers::open(context.config.cache_path(), job, options.image, rule);
  auto known = answers ? answers->find(now) : std::nullopt;
  if (!known) {
    TRY_ASSIGN(const Digest digest, ask(options, context));
    known = JobAnswer{digest, now, now, std::nullopt, false};
    // Another step that started at the same time may have got another answer.
    if (answers) known = answers->keep_first(*known);
    context.streams.out << known->digest.text() << '\n';
    return 0;
  }
  context.streams.out << known->digest.text() << '\n';
  const bool says_moved = known->moved && !known->told;
  // An answer that is too old after a time is asked for again then.
  const bool looks = rule.kind == ResolveRule::Kind::job && known->looked + kPause <= now;
  if (says_moved) context.streams.out << known->moved->text() << '\n';
  context.streams.out.flush();
  known->told = known->told || says_moved;
  if (looks) known->looked = now;
  if (says_moved || looks) (void)answers->keep(*known);
  if (looks) look_again(options, context, *answers);
  return 0;
}

Result<int> digest(const Context& context, const DigestOptions& options) {
  TRY(options.check_name("digest", "for a squashfs file: " + context.invocation.program + " inspect FILE"));
  if (!options.job.empty()) return digest_of_job(options, context);
  TRY_ASSIGN(const Digest found, ask(options, context));
  context.streams.out << found.text() << '\n';
  return 0;
}

}  // namespace

void add_digest(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "digest", "Print the digest of an image's manifest", digest);
  options.declare(command, "URI",
                  "[docker://][USER@][REGISTRY#]IMAGE[:TAG][@DIGEST], or any other image that import takes");
  command.flag("--index", options.index, "The digest for all architectures: of the index, where the image has one");
  // Of the plugin alone: no group, no help.
  command.option("--job", options.job).hidden();
  command.option("--resolve", options.resolve).hidden();
}

}  // namespace situla::cli
