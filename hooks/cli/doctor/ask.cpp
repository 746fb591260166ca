#include "hooks/cli/doctor/ask.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/text.hpp"

namespace situla::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostBytes = size_t{4} << 20U;
constexpr std::chrono::seconds kGrace{5};  ///< between SIGTERM and SIGKILL: srun tells slurmctld in it

/// One program that runs.
struct Run {
  size_t index = 0;  ///< of the question
  Child child;
  UniqueFd output, errors;
  Clock::time_point end;
  bool told_to_end = false;

  [[nodiscard]] bool open() const { return output || errors; }
};

Result<std::pair<UniqueFd, UniqueFd>> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, "create a pipe");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<Run> start(const Question& question, const std::vector<std::string>& environment, milliseconds limit) {
  TRY_ASSIGN(auto output, make_pipe());
  TRY_ASSIGN(auto errors, make_pipe());
  SpawnOptions options;
  options.program = question.program;
  options.arguments = {question.program};
  options.arguments.insert(options.arguments.end(), question.arguments.begin(), question.arguments.end());
  options.environment = environment;
  options.fds = {{output.second.get(), STDOUT_FILENO}, {errors.second.get(), STDERR_FILENO}};
  // A killed srun would leave its job; one that goes on ends by itself. Keys pressed on the terminal are ours to pass.
  options.die_with_parent = false;
  options.new_session = true;
  Run run;
  TRY_ASSIGN(run.child, spawn(options));
  run.output = std::move(output.first);
  run.errors = std::move(errors.first);
  run.end = Clock::now() + limit;
  return run;
}

/// The signals that end this process, held back while programs run.
class HeldSignals {
 public:
  HeldSignals() {
    sigset_t ending{};
    sigemptyset(&ending);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, number);
    sigprocmask(SIG_BLOCK, &ending, &before_);
    fd_.reset(signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool came() const {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info));
  }

 private:
  sigset_t before_{};
  UniqueFd fd_;
};

void read_some(UniqueFd& fd, std::string& into) {
  std::array<char, 16384> buffer{};
  const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
  if (size < 0 && errno == EINTR) return;
  if (size <= 0) return fd.reset();
  into.append(buffer.data(), std::min(static_cast<size_t>(size), kMostBytes - std::min(kMostBytes, into.size())));
}

class Asking {
 public:
  Asking(const std::vector<Question>& questions, const std::vector<std::string>& environment, Limits limits)
      : questions_(questions), environment_(environment), limits_(limits), answers_(questions.size()) {}

  Result<std::vector<Answer>> run() {
    while (!stopped_ || !runs_.empty()) {
      while (!stopped_ && next_ < questions_.size() && runs_.size() < std::max<size_t>(limits_.at_once, 1))
        start_next();
      if (runs_.empty()) break;
      wait_for_something();
      std::erase_if(runs_, [&](Run& run) { return finished(run); });
    }
    if (stopped_) return fail(ErrorKind::cancelled, "interrupted");
    return std::move(answers_);
  }

 private:
  void start_next() {
    const size_t index = next_++;
    auto run = start(questions_[index], environment_, limits_.each);
    if (!run) {
      answers_[index].broken = run.error().message();
      return;
    }
    run->index = index;
    runs_.push_back(std::move(*run));
  }

  void wait_for_something() {
    std::vector<pollfd> waits = {{signals_.fd(), POLLIN, 0}};
    Clock::time_point end = Clock::time_point::max();
    for (const Run& run : runs_) {
      for (const UniqueFd* fd : {&run.output, &run.errors})
        if (*fd) waits.push_back({fd->get(), POLLIN, 0});
      end = std::min(end, run.end);
    }
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    if (poll(waits.data(), waits.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000))) <= 0) return;
    if (signals_.came()) stop();
    const auto ready = [&](const UniqueFd& fd) {
      return fd && std::any_of(waits.begin() + 1, waits.end(),
                               [&](const pollfd& wait) { return wait.fd == fd.get() && wait.revents != 0; });
    };
    for (Run& run : runs_) {
      if (ready(run.output)) read_some(run.output, answers_[run.index].output);
      if (ready(run.errors)) read_some(run.errors, answers_[run.index].errors);
    }
  }

  void stop() {
    stopped_ = true;
    for (Run& run : runs_) tell_to_end(run);
  }

  static void tell_to_end(Run& run) {
    if (run.told_to_end) return;
    run.told_to_end = true;
    run.end = Clock::now() + kGrace;
    (void)run.child.signal(SIGTERM);
  }

  /// Whether the run is over: both pipes are, or its time is.
  bool finished(Run& run) {
    const bool time_is_over = Clock::now() >= run.end;
    if (run.open() && !time_is_over) return false;
    Answer& answer = answers_[run.index];
    if (run.open() && !run.told_to_end) {
      answer.late = true;
      tell_to_end(run);
      return false;
    }
    const auto status = run.child.wait_for(run.open() ? milliseconds(0) : milliseconds(kGrace));
    if (status && *status) answer.status = **status;
    return true;  // and killed with the Child, if it is still there
  }

  const std::vector<Question>& questions_;
  const std::vector<std::string>& environment_;
  Limits limits_;
  std::vector<Answer> answers_;
  HeldSignals signals_;
  std::vector<Run> runs_;
  size_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<std::vector<Answer>> ask_all(const std::vector<Question>& questions, const std::vector<std::string>& environment,
                                    Limits limits) {
  return Asking(questions, environment, limits).run();
}

std::optional<std::string> ask(const Question& question, const std::vector<std::string>& environment) {
  const auto answers = ask_all({question}, environment, {});
  if (!answers || answers->front().late || !answers->front().broken.empty() || !answers->front().status.success())
    return std::nullopt;
  return std::string(trim(answers->front().output));
}

}  // namespace situla::doctor
