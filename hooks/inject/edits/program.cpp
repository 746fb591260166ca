#include "hooks/inject/edits/program.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/guarded.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kDefaultLimit{10};
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kOciVersion = "1.0.2";
constexpr size_t kKeptOutput = 4096;
constexpr size_t kPipe = size_t{64} << 10U;
constexpr milliseconds kLookAgain{50};

/// A directory with the config.json of an OCI bundle; goes away with this object.
class Bundle {
 public:
  static Result<Bundle> create(const std::string& root_path) {
    // Beside the root, which is on a file system that ends with this mount namespace, also when we are killed.
    const std::string beside = root_path.substr(0, root_path.rfind('/')) + "/situla-bundle-XXXXXX";
    for (std::string path : {beside, std::string("/dev/shm/situla-bundle-XXXXXX")}) {
      if (mkdtemp(path.data()) == nullptr) continue;
      Bundle bundle(path);
      const nlohmann::json config = {{"ociVersion", kOciVersion}, {"root", {{"path", root_path}}}};
      TRY(write_file_atomically(path + "/config.json", config.dump(), 0600));
      return bundle;
    }
    return fail_errno(errno, "create a directory in /dev/shm");
  }
  Bundle(Bundle&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  Bundle& operator=(Bundle&&) = delete;
  ~Bundle() {
    if (!path_.empty()) (void)remove_tree(path_);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit Bundle(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::string state(const std::string& bundle, const std::string& root_path) {
  const auto pid = static_cast<int64_t>(getpid());
  const nlohmann::json document = {{"ociVersion", kOciVersion}, {"id", "situla-" + std::to_string(pid)},
                                   {"status", "creating"},      {"pid", pid},
                                   {"bundle", bundle},          {"root", root_path}};
  return document.dump();
}

/// The end of what a program writes into a pipe.
class Output {
 public:
  Result<UniqueFd> open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
    reader_.reset(ends[0]);
    UniqueFd writer(ends[1]);
    if (fcntl(reader_.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "prepare a pipe");
    return writer;
  }
  /// Takes what is there, but no more than the pipe holds: who writes without end must not keep us from the clock.
  /// False at the end.
  bool drain() {
    std::array<char, 4096> buffer{};
    for (size_t taken = 0; taken < kPipe;) {
      const ssize_t size = read(reader_.get(), buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return size != 0;
      taken += static_cast<size_t>(size);
      text_.append(buffer.data(), static_cast<size_t>(size));
      if (text_.size() > kKeptOutput) text_.erase(0, text_.size() - kKeptOutput);
    }
    return true;
  }
  [[nodiscard]] int fd() const { return reader_.get(); }
  [[nodiscard]] std::string text() const {
    std::vector<std::string> lines;
    for (const std::string_view line : split_nonempty(text_, '\n')) lines.push_back(printable(trim(line)));
    return join(lines, "; ");
  }

 private:
  UniqueFd reader_;
  std::string text_;
};

/// nullopt: it runs still.
Result<std::optional<ExitStatus>> watch(GuardedProgram& program, Output& output, std::chrono::seconds limit) {
  const auto deadline = Clock::now() + limit;
  bool open = true;
  for (;;) {
    TRY_ASSIGN(const auto status, program.wait_for(milliseconds(0)));
    if (open) open = output.drain();
    if (status) return status;
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return std::optional<ExitStatus>();
    std::array<pollfd, 2> wait = {pollfd{program.pidfd(), POLLIN, 0}, pollfd{open ? output.fd() : -1, POLLIN, 0}};
    const auto time = program.pidfd() >= 0 ? left : std::min(left, kLookAgain);
    (void)poll(wait.data(), wait.size(), static_cast<int>(std::min<int64_t>(time.count(), 3600 * 1000)));
  }
}

/// Programs of the image are never run on the host's side.
Result<void> check_program(const ProgramEdit& edit, const ApplyTarget& target) {
  if (!edit.path.starts_with('/')) return fail(ErrorKind::usage, "not an absolute path");
  std::unique_ptr<char, decltype(&std::free)> real(realpath(edit.path.c_str(), nullptr), &std::free);
  if (!real) return fail_errno(errno, "open " + edit.path);
  if (target.root_path.size() > 1 && std::string_view(real.get()).starts_with(target.root_path + "/"))
    return fail(ErrorKind::denied, "it lies in the container's root, and programs of an image are not run on the host");
  return {};
}

Result<SpawnOptions> prepare(const ProgramEdit& edit, int input, int output) {
  SpawnOptions options;
  options.program = edit.path;
  options.arguments = edit.arguments.empty() ? std::vector<std::string>{edit.path} : edit.arguments;
  options.environment = edit.environment;
  const bool has_path = std::any_of(edit.environment.begin(), edit.environment.end(),
                                    [](const std::string& variable) { return variable.starts_with("PATH="); });
  if (!has_path) options.environment.emplace_back(kPath);
  options.fds = {{input, STDIN_FILENO}, {output, STDOUT_FILENO}, {output, STDERR_FILENO}};
  options.new_session = true;
  options.no_new_privileges = true;
  return options;
}

Result<void> run(const ProgramEdit& edit, const ApplyTarget& target, Output& output) {
  TRY(check_program(edit, target));
  TRY_ASSIGN(const Bundle bundle, Bundle::create(target.root_path));
  TRY_ASSIGN(const UniqueFd input, memory_file("state"));
  TRY(write_all(input.get(), state(bundle.path(), target.root_path)));
  if (lseek(input.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "prepare its input");
  TRY_ASSIGN(UniqueFd writer, output.open());
  TRY_ASSIGN(const SpawnOptions options, prepare(edit, input.get(), writer.get()));
  TRY_ASSIGN(GuardedProgram program, spawn_guarded(options, true));
  writer.reset();
  const auto limit = edit.limit.count() > 0 ? edit.limit : kDefaultLimit;
  TRY_ASSIGN(const auto status, watch(program, output, limit));
  if (!status)
    return fail(ErrorKind::failure, "killed, as it ran for more than " + std::to_string(limit.count()) + " s");
  if (!status->success()) return fail(ErrorKind::failure, status->text());
  return {};
}

}  // namespace

Result<void> run_program(const ProgramEdit& edit, const ApplyTarget& target, LogSink& log) {
  Output output;
  auto done = run(edit, target, output);
  const std::string said = output.text();
  if (done) {
    if (!said.empty()) log.info(edit.path + ": " + said);
    return {};
  }
  if (said.empty()) return done;
  Error error(done.error().kind(), done.error().message() + "; it said: " + said);
  return fail(std::move(error.with_hint(done.error().hint())));
}

}  // namespace situla
