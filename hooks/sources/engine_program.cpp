#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/run_program.hpp"
#include "hooks/sources/engine.hpp"

namespace situla {
namespace {

constexpr size_t kMaxText = size_t{16} << 10U;

/// Holds back the signals that end a process, so that what a program leaves behind can be removed first. They take
/// effect when this is destroyed.
class SignalDelay {
 public:
  SignalDelay() {
    sigemptyset(&held_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&held_, number);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  SignalDelay(const SignalDelay&) = delete;
  SignalDelay& operator=(const SignalDelay&) = delete;
  ~SignalDelay() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  [[nodiscard]] bool came() const {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
      if (sigismember(&held_, number) == 1 && sigismember(&pending, number) == 1) return true;
    return false;
  }

 private:
  sigset_t held_{}, before_{};
};

/// Then comes the node's name: locks of directories are not seen by other nodes that share the file system.
constexpr std::string_view kScratchPrefix = "situla-save.";

std::string scratch_prefix() {
  return std::string(kScratchPrefix) + host_name() + ".";
}

/// A directory for the temporary files of a program, which podman leaves when a signal ends it. Locked while it is in
/// use: what a process that was killed left is removed by its user's next one.
class Scratch {
 public:
  static Result<Scratch> create(const std::string& parent) {
    TRY_ASSIGN(UniqueFd directory, open_file(parent, O_RDONLY | O_DIRECTORY));
    remove_dead(directory.get());
    constexpr int kAttempts = 16;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::string name = random_name(scratch_prefix());
      if (mkdirat(directory.get(), name.c_str(), 0700) != 0)
        return fail_errno(errno, "create a directory in " + printable(parent));
      auto lock = lock_of(directory.get(), name);
      struct stat status {};
      // Another's remove_dead() may have come first.
      if (lock && fstat(lock->fd(), &status) == 0 && status.st_nlink > 0)
        return Scratch(parent, name, std::move(directory), std::move(*lock));
    }
    return fail(ErrorKind::failure, "create a directory in " + printable(parent) + ": others remove it");
  }
  Scratch(Scratch&&) noexcept = default;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (directory_) (void)remove_tree_at(directory_.get(), name_);
  }
  [[nodiscard]] std::string path() const { return parent_ + "/" + name_; }

 private:
  Scratch(std::string parent, std::string name, UniqueFd directory, FileLock lock)
      : parent_(std::move(parent)), name_(std::move(name)), directory_(std::move(directory)), lock_(std::move(lock)) {}

  static Result<FileLock> lock_of(int directory, const std::string& name) {
    TRY_ASSIGN(UniqueFd file, open_file_at(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return FileLock::acquire(std::move(file), FileLock::Kind::exclusive, std::chrono::milliseconds(0), name);
  }

  static void remove_dead(int directory) {
    const auto names = list_directory(directory, "temporary files");
    if (!names) return;
    const std::string prefix = scratch_prefix();
    for (const std::string& name : *names) {
      struct stat status {};
      if (!is_random_name(name, prefix) || fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
          status.st_uid != geteuid())
        continue;
      if (const auto lock = lock_of(directory, name)) (void)remove_tree_at(directory, name);
    }
  }

  std::string parent_, name_;
  UniqueFd directory_;
  FileLock lock_;
};

std::string last_line(const std::string& text) {
  const auto lines = split_nonempty(text, '\n');
  return lines.empty() ? "" : excerpt(trim(lines.back()));
}

uint64_t size_of(int fd) {
  struct stat status {};
  return fd >= 0 && fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

class EngineProgram final : public Engine {
 public:
  EngineProgram(ImageKind kind, EngineSettings settings)
      : podman_(kind == ImageKind::podman), settings_(std::move(settings)), place_(printable(settings_.program)) {}

  Result<std::optional<uint64_t>> find(const std::string& image, const EngineWatch& watch) override {
    TRY_ASSIGN(const ProgramRun outcome, run({"image", "inspect", "--format", "{{.Size}}", image}, -1, "", watch));
    if (outcome.success()) return parse_unsigned(last_line(outcome.output)).value_or(0);
    const std::string said = to_lower(outcome.errors);
    for (const char* missing : {"no such image", "no such object", "image not known"})
      if (said.find(missing) != std::string::npos) return std::nullopt;
    return fail(failure(outcome));
  }

  Result<void> save(const std::string& image, int fd, const EngineWatch& watch) override {
    // podman's way to a pipe is a FIFO in a temporary directory; /dev/stdout is the file itself.
    const std::vector<std::string> arguments =
        podman_ ? std::vector<std::string>{"save", "-q", "--format", "docker-archive", "-o", "/dev/stdout", image}
                : std::vector<std::string>{"save", image};
    const SignalDelay signals;
    TRY_ASSIGN(const Scratch scratch, Scratch::create(settings_.temp_directory));
    TRY_ASSIGN(const ProgramRun outcome, run(arguments, fd, scratch.path(), watch));
    if (!outcome.success()) return fail(failure(outcome));
    return {};
  }

  [[nodiscard]] const std::string& place() const override { return place_; }

 private:
  [[nodiscard]] Error failure(const ProgramRun& outcome) const {
    const std::string line = last_line(outcome.errors);
    const bool denied = to_lower(outcome.errors).find("permission denied") != std::string::npos;
    const bool full = to_lower(outcome.errors).find("no space left") != std::string::npos;
    return {denied ? ErrorKind::denied : (full ? ErrorKind::no_space : ErrorKind::failure),
            place_ + ": " + (line.empty() ? outcome.status->text() : line)};
  }

  /// output: its standard output; -1: what it writes there is kept. temporary: where it puts temporary files. None for
  /// a first command: where there is no XDG_RUNTIME_DIR, podman keeps its state in TMPDIR, and the very first podman of
  /// a user writes that into its database, so that every later one makes the directory again.
  Result<ProgramRun> run(const std::vector<std::string>& arguments, int output, const std::string& temporary,
                         const EngineWatch& watch) {
    const SignalDelay signals;
    SpawnOptions options;
    options.program = settings_.program;
    options.arguments = {settings_.program};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    for (const std::string& variable : settings_.environment)
      if (temporary.empty() || !variable.starts_with("TMPDIR=")) options.environment.push_back(variable);
    if (!temporary.empty()) options.environment.push_back("TMPDIR=" + temporary);
    if (output >= 0) options.fds = {{output, STDOUT_FILENO}};
    RunLimits limits;
    limits.error_bytes = kMaxText;
    limits.cancelled = [&] {
      watch.written(size_of(output));
      return watch.cancelled() || signals.came();
    };
    TRY_ASSIGN(ProgramRun run, run_program(std::move(options), limits));
    if (run.end == ProgramRun::End::cancelled) return fail(ErrorKind::cancelled, "cancelled");
    if (run.end != ProgramRun::End::by_itself) return fail(ErrorKind::corrupt, place_ + ": it prints more than 64 KiB");
    watch.written(size_of(output));
    return run;
  }

  bool podman_;
  EngineSettings settings_;
  std::string place_;
};

}  // namespace

std::unique_ptr<Engine> make_engine_program(ImageKind kind, const EngineSettings& settings) {
  return std::make_unique<EngineProgram>(kind, settings);
}

}  // namespace situla
