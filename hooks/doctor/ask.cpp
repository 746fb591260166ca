#include "hooks/doctor/ask.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>

#include "common/base/text.hpp"
#include "common/sys/process/held_signals.hpp"
#include "common/sys/process/run_program.hpp"

namespace situla::doctor {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20U;

Answer ask_one(const Question& question, const std::vector<std::string>& environment, std::chrono::milliseconds time,
               const std::atomic<bool>& stopped) {
  SpawnOptions options;
  options.program = question.program;
  options.arguments = {question.program};
  options.arguments.insert(options.arguments.end(), question.arguments.begin(), question.arguments.end());
  options.environment = environment;
  // A killed srun would leave its job; one that goes on ends by itself. Keys pressed on the terminal are ours to pass.
  options.die_with_parent = false;
  options.new_session = true;
  RunLimits limits;
  limits.time = time;
  limits.output_bytes = limits.error_bytes = kMostBytes;
  limits.grace = kSrunGrace;
  limits.cancelled = [&stopped] { return stopped.load(); };
  Answer answer;
  answer.began = std::chrono::system_clock::now();
  auto run = run_program(std::move(options), limits);
  answer.ended = std::chrono::system_clock::now();
  if (!run) {
    answer.broken = run.error().message();
    return answer;
  }
  answer.late = run->end == ProgramRun::End::too_late;
  if (run->end == ProgramRun::End::too_much_output) answer.broken = "it prints more than " + format_size(kMostBytes);
  answer.output = std::move(run->output);
  answer.errors = std::move(run->errors);
  answer.status = run->status.value_or(ExitStatus{});
  return answer;
}

}  // namespace

Result<std::vector<Answer>> ask_all(const std::vector<Question>& questions, const std::vector<std::string>& environment,
                                    Limits limits) {
  const HeldSignals signals;
  const UniqueFd done(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  std::vector<Answer> answers(questions.size());
  std::atomic<bool> stopped{false};
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads(std::min(std::max<size_t>(limits.at_once, 1), questions.size()));
  for (std::thread& thread : threads)
    thread = std::thread([&] {
      for (size_t i = next++; i < questions.size() && !stopped; i = next++)
        answers[i] = ask_one(questions[i], environment, limits.each, stopped);
      eventfd_write(done.get(), 1);
    });
  for (size_t ended = 0; ended < threads.size();) {
    std::array<pollfd, 2> waits = {{{done.get(), POLLIN, 0}, {stopped ? -1 : signals.fd(), POLLIN, 0}}};
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[1].revents != 0) stopped = true;
    eventfd_t one = 0;
    if (waits[0].revents != 0 && eventfd_read(done.get(), &one) == 0) ++ended;
  }
  for (std::thread& thread : threads) thread.join();
  if (stopped) return fail(ErrorKind::cancelled, "interrupted");
  return answers;
}

std::optional<std::string> ask(const Question& question, const std::vector<std::string>& environment) {
  const auto answers = ask_all({question}, environment, {});
  if (!answers || answers->front().late || !answers->front().broken.empty() || !answers->front().status.success())
    return std::nullopt;
  return std::string(trim(answers->front().output));
}

}  // namespace situla::doctor
