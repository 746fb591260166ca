// situla-courier: started by situla-broker, as the job user with CAP_DAC_READ_SEARCH (hooks/courier/README.md):
// `situla-courier DIRECTORY JOB.STEP NODE NODES SBCAST [SLURM_CONF]`, with the descriptors of courier_fd. By itself it
// starts `send`, `fetch` and `decline` (transfer.hpp), with the descriptors of stream_fd.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <deque>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "common/base/base64.hpp"
#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/directory_watch.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"
#include "hooks/courier/messages.hpp"
#include "hooks/courier/transfer.hpp"

namespace situla {
namespace {

namespace line = courier_line;

/// Of the programs that this one starts of itself; what they say on their standard error ends with them.
namespace stream_fd {
constexpr int kOffer = 3;      ///< fetch, decline
constexpr int kFile = 4;       ///< send, fetch
constexpr int kDelivered = 5;  ///< send: a pipe
}  // namespace stream_fd
constexpr std::string_view kOfferWord = "offer ";  ///< the first word of `send`; base64 and a line's end follow
constexpr std::string_view kWhole = "whole\n";     ///< the first word of `fetch`, when the file is there
constexpr int kUnreached = 2, kHere = 3;           ///< its exit codes: no connection; the file could not be written

constexpr size_t kMostTasks = 8;                      ///< sbcasts, and what is started of this program
constexpr std::chrono::milliseconds kLastWord{3000};  ///< the broker waits longer than this
constexpr size_t kMostSaid = 4096;                    ///< bytes of what a program says
constexpr size_t kMostUnheard = 1024;                 ///< messages to a store program that does not listen yet

struct Arguments {
  std::string directory, step, sbcast, slurm_conf;
  uint64_t node = 0, nodes = 0;
};

Result<Arguments> parse_arguments(const std::vector<std::string>& words) {
  const auto node = words.size() > 5 ? parse_unsigned(words[3]) : std::nullopt;
  const auto nodes = words.size() > 5 ? parse_unsigned(words[4]) : std::nullopt;
  if (!node || !nodes || !words[1].starts_with('/'))
    return fail(ErrorKind::usage, "courier: DIRECTORY JOB.STEP NODE NODES SBCAST [SLURM_CONF]");
  return Arguments{words[1], words[2], words[5], words.size() > 6 ? words[6] : "", *node, *nodes};
}

class Courier {
 public:
  Courier(Arguments arguments, UniqueFd directory, DirectoryWatch watch)
      : arguments_(std::move(arguments)), directory_(std::move(directory)), watch_(std::move(watch)) {}

  /// Until the broker hangs up.
  Result<void> run() {
    for (const std::string& name : list_directory(directory_.get(), arguments_.directory).value_or(kNothing))
      hand_over(name);
    for (;;) {
      const auto store_events = static_cast<short>(unheard_.empty() ? POLLIN : POLLIN | POLLOUT);
      std::vector<pollfd> wait = {{courier_fd::kBroker, POLLIN, 0},
                                  {watch_.fd(), POLLIN, 0},
                                  {store_ ? courier_fd::kStore : -1, store_events, 0}};
      for (const Task& task : tasks_) wait.push_back({task.said.get(), POLLIN, 0});
      if (poll(wait.data(), wait.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return fail_errno(errno, "wait for the store program");
      }
      if (wait[0].revents != 0) return {};
      for (size_t i = 3; i < wait.size(); ++i) {
        // Others may have gone meanwhile.
        const auto task =
            std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& one) { return one.said.get() == wait[i].fd; });
        if (wait[i].revents != 0 && task != tasks_.end()) on_said(static_cast<size_t>(task - tasks_.begin()));
      }
      if (wait[1].revents != 0) TRY(on_written());
      if ((wait[2].revents & POLLOUT) != 0) say_unheard();
      if ((wait[2].revents & ~POLLOUT) != 0) on_store();
    }
  }

  /// What came is removed. A last word to the other nodes is on its way still.
  void end(std::chrono::milliseconds limit) {
    using Clock = std::chrono::steady_clock;
    const auto left = [end = Clock::now() + limit] {
      const auto until = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      return std::max(until, std::chrono::milliseconds(0));
    };
    for (Task& task : tasks_)
      if (task.role == Role::sbcast && task.kind != line::Kind::image) (void)task.program.wait_for(left());
    tasks_.clear();
    clear();
  }

 private:
  enum class Role : uint8_t { sbcast, send, fetch, decline };
  struct Task {
    Role role = Role::sbcast;
    line::Kind kind = line::Kind::claim;
    uint32_t node = 0;  ///< fetch
    Child program{};
    UniqueFd said{};  ///< its standard error
    std::string text{};
    UniqueFd file{};     ///< fetch: nameless
    bool spoke = false;  ///< its first word: fetch has the file, send has an offer
  };
  struct Unheard {
    std::string message;
    std::vector<UniqueFd> fds;
  };
  static inline const std::vector<std::string> kNothing;

  void clear() {
    for (const std::string& name : list_directory(directory_.get(), arguments_.directory).value_or(kNothing))
      (void)remove_tree_at(directory_.get(), name);
  }

  /// It may not have begun to listen, or be busy; and never will where a named container needs no image.
  void say(const line::Message& message, UniqueFd file = UniqueFd()) {
    // What became of its own words it waits for.
    if (!store_ || (file && unheard_.size() >= kMostUnheard)) return;
    unheard_.push_back({line::encode(message), {}});
    if (file) unheard_.back().fds.push_back(std::move(file));
    say_unheard();
  }

  void say_unheard() {
    while (store_ && !unheard_.empty()) {
      std::vector<int> fds;
      for (const UniqueFd& fd : unheard_.front().fds) fds.push_back(fd.get());
      const auto said = send_packet(courier_fd::kStore, unheard_.front().message, fds, Wait::no);
      if (!said && said.error().errnum() == EAGAIN) return;
      store_ = store_ && said.has_value();
      unheard_.pop_front();
    }
    unheard_.clear();
  }

  void on_store() {
    const auto packet = receive_packet(courier_fd::kStore, line::kMaxBytes);
    const auto message = packet && *packet ? line::decode((*packet)->bytes) : fail(ErrorKind::corrupt, "");
    const bool one = message && (*packet)->fds.size() == 1;
    if (const auto* send = one ? std::get_if<line::Send>(&*message) : nullptr) {
      const int file = (*packet)->fds[0].get();
      const auto started = send->kind == line::Kind::offer ? offer(file) : copy(send->kind, file);
      if (!started) say(line::Sent{send->kind, false, started.error().message()});
    } else if (const auto* wanted = one ? std::get_if<line::Fetch>(&*message) : nullptr) {
      const auto started = fetch(*wanted, (*packet)->fds[0].get());
      if (!started && wanted->wanted) say(line::Lost{wanted->node, line::Loss::unreachable, started.error().message()});
    } else {
      // It has what it wanted. What still comes is for nobody; what was fetched others may still get from here.
      store_ = false;
      unheard_.clear();
      std::erase_if(tasks_, [](const Task& task) {
        return task.role == Role::send || (task.role == Role::sbcast && task.kind == line::Kind::image);
      });
      clear();
    }
  }

  Result<void> start(Task task, SpawnOptions options) {
    if (tasks_.size() >= kMostTasks) return fail(ErrorKind::failure, "too many transfers at a time");
    TRY_ASSIGN(auto said, make_pipe());
    if (fcntl(said.first.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno(errno, "set up a pipe");
    options.fds.emplace_back(said.second.get(), STDERR_FILENO);
    options.no_new_privileges = true;
    TRY_ASSIGN(task.program, spawn(options));
    task.said = std::move(said.first);
    tasks_.push_back(std::move(task));
    return {};
  }

  Result<void> copy(line::Kind kind, int file) {
    TRY(check_program_of_root(arguments_.sbcast));  // it gets a capability
    constexpr int kFile = 3;
    SpawnOptions options;
    options.program = arguments_.sbcast;
    options.arguments = {"sbcast",
                         "--force",
                         "--compress=none",
                         "--send-libs=no",
                         "--jobid=" + arguments_.step,
                         fd_path(kFile),
                         arguments_.directory + "/" + line::file_name(kind, static_cast<uint32_t>(arguments_.node))};
    options.environment = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
    if (!arguments_.slurm_conf.empty()) options.environment.push_back("SLURM_CONF=" + arguments_.slurm_conf);
    options.fds = {{file, kFile}};
    return start({.role = Role::sbcast, .kind = kind}, std::move(options));
  }

  /// This program, with another task.
  static SpawnOptions own_program(const char* what, uint64_t number) {
    SpawnOptions options;
    options.program = "/proc/self/exe";
    options.arguments = {"situla-courier", what, std::to_string(number)};
    return options;
  }

  /// Only the last one counts. It says what the offer is: where it listens it may have asked a name service.
  Result<void> offer(int file) {
    std::erase_if(tasks_, [](const Task& task) {
      return task.role == Role::send || (task.role == Role::sbcast && task.kind == line::Kind::offer);
    });
    TRY_ASSIGN(auto delivered, make_pipe());
    SpawnOptions options = own_program("send", arguments_.nodes);
    options.fds = {{file, stream_fd::kFile}, {delivered.first.get(), stream_fd::kDelivered}};
    delivered_ = std::move(delivered.second);
    return start({.role = Role::send, .kind = line::Kind::offer}, std::move(options));
  }

  Result<void> send_offer(std::string_view word) {
    const auto line_end = word.find('\n');
    const auto bytes = word.starts_with(kOfferWord)
                           ? decode_base64(word.substr(kOfferWord.size(), line_end - kOfferWord.size()))
                           : std::nullopt;
    if (!bytes) return fail(ErrorKind::failure, printable(word.substr(0, line_end)));
    TRY_ASSIGN(const UniqueFd words, sealed_memory("situla-offer", *bytes));
    return copy(line::Kind::offer, words.get());
  }

  /// A nameless file in the directory.
  Result<UniqueFd> make_file() {
    if (auto file = open_file_at(directory_.get(), ".", O_TMPFILE | O_RDWR, 0600)) return file;
    const std::string name = random_name(".fetch-");
    TRY_ASSIGN(UniqueFd file, open_file_at(directory_.get(), name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    (void)remove_tree_at(directory_.get(), name);
    return file;
  }

  Result<void> fetch(const line::Fetch& wanted, int words) {
    std::erase_if(tasks_, [&](const Task& task) { return task.role == Role::fetch && task.node == wanted.node; });
    SpawnOptions options = own_program(wanted.wanted ? "fetch" : "decline", arguments_.node);
    options.fds = {{words, stream_fd::kOffer}};
    Task task{.role = wanted.wanted ? Role::fetch : Role::decline, .kind = line::Kind::offer, .node = wanted.node};
    if (wanted.wanted) {
      TRY_ASSIGN(task.file, make_file());
      options.fds.emplace_back(task.file.get(), stream_fd::kFile);
    }
    return start(std::move(task), std::move(options));
  }

  /// Its last word is its end: nothing that it started holds the pipe.
  void on_said(size_t index) {
    Task& task = tasks_.at(index);
    std::array<char, kMostSaid> piece{};
    const ssize_t got = read(task.said.get(), piece.data(), piece.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return on_end(index);
    task.text.append(piece.data(), std::min<size_t>(static_cast<size_t>(got), kMostSaid - task.text.size()));
    if (task.spoke || task.text.find('\n') == task.text.npos) return;
    if (task.role == Role::fetch && task.text == kWhole) {
      auto file = open_file(fd_path(task.file.get()), O_RDONLY);
      task.spoke = file.has_value();
      task.text.clear();
      if (file) say(line::Arrived{line::Kind::image, task.node}, std::move(*file));
    } else if (task.role == Role::send && task.text.starts_with(kOfferWord)) {
      task.spoke = true;
      const std::string word = std::exchange(task.text, "");  // the next line starts another task
      if (const auto sent = send_offer(word); !sent) {
        tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(index));
        say(line::Sent{line::Kind::offer, false, sent.error().message()});
      }
    }
  }

  void on_end(size_t index) {
    Task task = std::move(tasks_.at(index));
    tasks_.erase(tasks_.begin() + static_cast<ptrdiff_t>(index));
    const auto status = task.program.wait();
    const bool success = status && status->success();
    std::string why = success ? "" : printable(task.text.substr(0, task.text.find('\n')));
    if (!success && why.empty()) why = "it " + (status ? status->text() : std::string("is lost"));
    switch (task.role) {
      case Role::fetch:
        if (!task.spoke) say(line::Lost{task.node, loss_of(status), why});
        break;
      case Role::sbcast:
        // Who has no offer is not waited for; those who have go on.
        if (task.kind == line::Kind::offer)
          delivered_.reset();
        else
          say(line::Sent{task.kind, success, why});
        break;
      case Role::send:
        // One that was killed has not waited until all had it.
        say(line::Sent{task.kind, task.spoke && status && status->signal == 0, why});
        break;
      case Role::decline:
        break;
    }
  }

  static line::Loss loss_of(const Result<ExitStatus>& fetch) {
    if (!fetch || fetch->signal != 0) return line::Loss::broken;
    return fetch->code == kHere        ? line::Loss::here
           : fetch->code == kUnreached ? line::Loss::unreachable
                                       : line::Loss::broken;
  }

  Result<void> on_written() {
    TRY_ASSIGN(auto written, watch_.read());
    if (written.lost) {
      TRY_ASSIGN(written.names, list_directory(directory_.get(), arguments_.directory));
    }
    for (const std::string& name : written.names) hand_over(name);
    return {};
  }

  /// Of this file system: what a user has mounted over a name (FUSE) could keep whoever reads or closes it waiting.
  void hand_over(const std::string& name) {
    const auto parsed = line::parse_file_name(name);
    const bool known = parsed && parsed->node < arguments_.nodes && parsed->node != arguments_.node;
    struct stat status {
    }, ours{};
    const auto path = known && (store_ || parsed->kind == line::Kind::offer)
                          ? open_file_at(directory_.get(), name, O_PATH | O_NOFOLLOW)
                          : fail(ErrorKind::not_found, "");
    const bool sound = path && fstat(path->get(), &status) == 0 && fstat(directory_.get(), &ours) == 0 &&
                       S_ISREG(status.st_mode) && status.st_dev == ours.st_dev && status.st_uid == geteuid();
    auto file = sound ? open_file(fd_path(path->get()), O_RDONLY) : fail(ErrorKind::not_found, "");
    // What has been said is not needed any more; the voucher tells when the image is whole.
    if (!file || parsed->kind != line::Kind::image) (void)remove_tree_at(directory_.get(), name);
    if (file && store_)
      say(line::Arrived{parsed->kind, parsed->node}, std::move(*file));
    else if (file)
      (void)fetch({parsed->node, false}, file->get());
  }

  Arguments arguments_;
  UniqueFd directory_;
  DirectoryWatch watch_;
  std::vector<Task> tasks_;
  UniqueFd delivered_;  ///< open until all nodes have this one's offer
  std::deque<Unheard> unheard_;
  bool store_ = true;  ///< it listens
};

Result<void> send(uint32_t nodes) {
  struct stat status {};
  if (fstat(stream_fd::kFile, &status) != 0) return fail_errno(errno, "look at the image");
  TRY_ASSIGN(auto listening, stream::listen_for_others(static_cast<uint64_t>(status.st_size)));
  const std::string word = std::string(kOfferWord) + encode_base64(stream::encode(listening.offer)) + "\n";
  TRY(write_all(STDERR_FILENO, word));
  return stream::send_file({.listener = std::move(listening.listener),
                            .offer = std::move(listening.offer),
                            .file = stream_fd::kFile,
                            .nodes = nodes,
                            .delivered = stream_fd::kDelivered});
}

Result<void> transfer(const std::string& what, uint32_t number) {
  TRY(drop_all_capabilities());
  if (what == "send") return send(number);
  // Where a connection broke off, another one has read it before.
  if (lseek(stream_fd::kOffer, 0, SEEK_SET) != 0) return fail_errno(errno, "read the offer");
  TRY_ASSIGN(const std::string words, read_all(stream_fd::kOffer, stream::kMostOffer));
  TRY_ASSIGN(const stream::Offer offer, stream::decode_offer(words));
  if (what == "decline") return stream::decline_file(offer, number);
  return stream::fetch_file(offer, number, stream_fd::kFile, [] { (void)write_all(STDERR_FILENO, kWhole); });
}

/// Whoever has started it reads its standard error.
int run_transfer(const std::string& what, const std::string& number) {
  const auto parsed = parse_unsigned(number);
  const auto done = parsed && *parsed < UINT32_MAX ? transfer(what, static_cast<uint32_t>(*parsed))
                                                   : fail(ErrorKind::usage, "courier: no number: " + number);
  if (done) return 0;
  (void)write_all(STDERR_FILENO, done.error().message() + "\n");
  switch (done.error().kind()) {
    case ErrorKind::unreachable:
      return kUnreached;
    case ErrorKind::network:
      return 1;
    default:
      return kHere;
  }
}

Result<void> run(const std::vector<std::string>& words) {
  TRY(leave_capabilities_to_programs());
  TRY_ASSIGN(Arguments arguments, parse_arguments(words));
  // By the descriptor: root has opened it before anything could be mounted there.
  if (fcntl(courier_fd::kDirectory, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "descriptor of the directory");
  UniqueFd directory(courier_fd::kDirectory);
  // Before it is listed: nothing falls between.
  TRY_ASSIGN(DirectoryWatch watch, DirectoryWatch::open(directory.get()));
  Courier courier(std::move(arguments), std::move(directory), std::move(watch));
  auto ended = courier.run();
  courier.end(kLastWord);
  return ended;
}

}  // namespace
}  // namespace situla

int main(int argc, char** argv) {
  situla::take_program_name();
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(077);
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() == 3 && (words[1] == "send" || words[1] == "fetch" || words[1] == "decline"))
    return situla::run_transfer(words[1], words[2]);
  const auto ended = situla::run(words);
  if (!ended) syslog(LOG_WARNING, "%s", ended.error().text().c_str());
  return ended ? 0 : 1;
}
