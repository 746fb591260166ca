#include "common/sys/process/process.hpp"

#include <atomic>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "common/sys/socket.hpp"
#include "tests/support/shell.hpp"
#include "tests/support/temp_dir.hpp"

using namespace situla;
using situla::test::shell;
using namespace std::chrono_literals;

namespace {

/// What the script printed on descriptor 1.
std::string output_of(SpawnOptions options, std::vector<std::pair<int, int>> more = {}) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  options.fds.emplace_back(writer.get(), 1);
  options.fds.insert(options.fds.end(), more.begin(), more.end());
  auto child = spawn(options);
  REQUIRE(child);
  writer.reset();
  auto text = read_all(reader.get(), 65536);
  REQUIRE(text);
  REQUIRE(child->wait());
  return *text;
}

}  // namespace

TEST_CASE("An exit status tells code and signal apart, and has a text") {
  auto child = spawn(shell("exit 3"));
  REQUIRE(child);
  const auto code = child->wait();
  REQUIRE(code);
  CHECK(code->code == 3);
  CHECK(code->text() == "exited with return code 3");
  auto killed = spawn(shell("kill -9 $$"));
  REQUIRE(killed);
  const auto signal = killed->wait();
  REQUIRE(signal);
  CHECK(signal->signal == SIGKILL);
  CHECK_FALSE(signal->success());
  CHECK(signal->text() == "was killed by SIGKILL");
}

TEST_CASE("A detached program is no child, has the mapped descriptors and a session of its own") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  // Field 4 of proc_pid_stat(5) is the parent, field 6 the session.
  SpawnOptions options = shell("cut -d' ' -f4,6 /proc/$$/stat; echo $$; exec sleep 60");
  options.new_session = true;
  options.fds = {{writer.get(), 1}};
  REQUIRE(spawn_detached(options));
  writer.reset();
  std::string text;
  char byte = 0;
  for (int lines = 0; lines < 2 && read(reader.get(), &byte, 1) == 1; text += byte) lines += byte == '\n';
  pid_t parent = 0;
  pid_t session = 0;
  pid_t pid = 0;
  REQUIRE(std::sscanf(text.c_str(), "%d %d %d", &parent, &session, &pid) == 3);
  CHECK(parent != getpid());
  CHECK(session == pid);
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(kill(pid, SIGKILL) == 0);
  options.program = "/nonexistent/program";
  options.fds.clear();
  const auto lost = spawn_detached(options);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().message() == "execute /nonexistent/program: No such file or directory");
}

TEST_CASE("A failed exec is an error of spawn, with the program's name") {
  SpawnOptions options;
  options.program = "/nonexistent/program";
  options.arguments = {"program"};
  const auto child = spawn(options);
  REQUIRE_FALSE(child);
  CHECK(child.error().message() == "execute /nonexistent/program: No such file or directory");
  CHECK(child.error().kind() == ErrorKind::not_found);
  SpawnOptions nowhere = shell("true");
  nowhere.directory = "/nonexistent";
  const auto lost = spawn(nowhere);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().message() == "start /bin/sh: enter directory /nonexistent: No such file or directory");
  const auto bad = spawn([] {
    SpawnOptions result = shell("true");
    result.fds = {{-1, 3}};
    return result;
  }());
  CHECK_FALSE(bad);
}

TEST_CASE("Descriptors are mapped even when sources and targets cross") {
  const test::TempDir dir;
  const UniqueFd a(open(dir.write("a", "A").c_str(), O_RDONLY));
  const UniqueFd b(open(dir.write("b", "B").c_str(), O_RDONLY));
  // Every source number is the target of another one.
  const UniqueFd low(fcntl(a.get(), F_DUPFD, 20));
  const UniqueFd high(fcntl(b.get(), F_DUPFD, low.get() + 1));
  const std::string script = "cat <&" + std::to_string(high.get()) + "; cat <&" + std::to_string(low.get());
  // bash, because dash knows only one-digit descriptors.
  SpawnOptions options = shell(script);
  options.program = "/bin/bash";
  CHECK(output_of(options, {{low.get(), high.get()}, {high.get(), low.get()}}) == "AB");
}

TEST_CASE("Only the mapped descriptors and /dev/null are open, whatever leaked before") {
  const UniqueFd leaked(open("/etc/passwd", O_RDONLY));  // on purpose without O_CLOEXEC
  const UniqueFd high(fcntl(leaked.get(), F_DUPFD, 500));
  SpawnOptions options;
  options.program = "/bin/ls";
  options.arguments = {"ls", "-l", "/proc/self/fd"};
  options.environment = {"LC_ALL=C"};
  const std::string text = output_of(options);
  CHECK(text.find("/etc/passwd") == std::string::npos);
  CHECK(text.find("0 -> /dev/null") != std::string::npos);
  CHECK(text.find("2 -> /dev/null") != std::string::npos);
  CHECK(text.find("1 -> pipe:") != std::string::npos);
  CHECK(text.find("4 -> ") == std::string::npos);  // 3 is the directory that ls reads
}

TEST_CASE("Signals are as a program expects them, whatever this process did") {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGUSR1);
  REQUIRE(sigprocmask(SIG_BLOCK, &blocked, &before) == 0);
  REQUIRE(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  SpawnOptions options;
  options.program = "/bin/grep";
  options.arguments = {"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"};
  const std::string text = output_of(options);
  REQUIRE(sigprocmask(SIG_SETMASK, &before, nullptr) == 0);
  REQUIRE(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
  CHECK(text == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST_CASE("The environment and the OOM score are exactly what was asked for") {
  const auto score = read_file("/proc/self/oom_score_adj");
  REQUIRE(score);
  REQUIRE(write_all(open_file("/proc/self/oom_score_adj", O_WRONLY)->get(), "500"));
  SpawnOptions options = shell("env | grep -v ^PWD=; cat /proc/self/oom_score_adj");
  options.environment = {"A=1 2", "PATH=/usr/bin:/bin"};
  const std::string text = output_of(options);
  REQUIRE(write_all(open_file("/proc/self/oom_score_adj", O_WRONLY)->get(), *score));
  CHECK(text.find("A=1 2\n") != std::string::npos);
  CHECK(text.find("HOME=") == std::string::npos);
  CHECK(text.substr(text.size() - 2) == "0\n");
}

TEST_CASE("Waiting has a time limit, and a child dies with its owner") {
  pid_t pid = -1;
  {
    auto child = spawn(shell("exec sleep 60"));
    REQUIRE(child);
    pid = child->pid();
    const auto start = std::chrono::steady_clock::now();
    const auto nothing = child->wait_for(50ms);
    REQUIRE(nothing);
    CHECK_FALSE(nothing->has_value());
    CHECK(std::chrono::steady_clock::now() - start < 5s);
    REQUIRE(child->signal(0));
  }
  CHECK(kill(pid, 0) != 0);
  auto ended = spawn(shell("kill -TERM $$"));
  REQUIRE(ended);
  const auto status = ended->wait_for(5s);
  REQUIRE(status);
  REQUIRE(status->has_value());
  CHECK((*status)->text() == "was killed by SIGTERM");
  CHECK_FALSE(ended->signal(SIGTERM));
}

TEST_CASE("A child that somebody else reaps is an error, not a hang") {
  auto child = spawn(shell("exit 0"));
  REQUIRE(child);
  int status = 0;
  REQUIRE(waitpid(child->pid(), &status, 0) == child->pid());
  const auto lost = child->wait_for(5s);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().errnum() == ECHILD);
}

TEST_CASE("A helper dies with the process that started it") {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  auto middle = fork_child();
  REQUIRE(middle);
  if (!*middle) {
    SpawnOptions options = shell("exec sleep 60");
    options.fds = {{writer.get(), 1}};  // the pipe ends when the helper does
    auto helper = spawn(options);
    if (!helper) _exit(1);
    (void)helper->release();
    _exit(0);
  }
  writer.reset();
  REQUIRE(middle->wait()->success());
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(read_all(reader.get(), 100));
  CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("Spawning works from many threads at once") {
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&good] {
      for (int n = 0; n < 10; ++n) {
        SpawnOptions options = shell("exit 7");
        options.die_with_parent = false;
        auto child = spawn(options);
        if (!child) continue;
        const auto status = child->wait();
        if (status && status->code == 7) ++good;
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(good == 80);
}

TEST_CASE("close_other_fds keeps what it is told to keep") {
  auto child = fork_child();
  REQUIRE(child);
  if (!*child) {
    for (int fd = 10; fd < 20; ++fd)
      if (dup2(0, fd) < 0) _exit(1);
    close_other_fds(10, {17, 12, 12, 3});
    for (int fd = 10; fd < 20; ++fd)
      if ((fcntl(fd, F_GETFD) >= 0) != (fd == 12 || fd == 17)) _exit(fd);
    _exit(0);
  }
  CHECK(child->wait()->code == 0);
}

TEST_CASE("The end of a process that is not ours to wait for is noticed, with and without pidfds") {
  const bool by_pidfd = GENERATE(true, false);
  auto child = spawn(shell("exec sleep 60"));
  REQUIRE(child);
  const auto end = ProcessEnd::of(child->pid(), by_pidfd);
  REQUIRE(end);
  std::atomic<bool> ended = false;
  std::thread waiter([&] {
    end->wait();
    ended = true;
  });
  std::this_thread::sleep_for(250ms);
  CHECK_FALSE(ended);
  CHECK(child->signal(SIGKILL));
  // Without reaping it first: a zombie has ended.
  waiter.join();
  CHECK(ended);
  CHECK(child->wait()->signal == SIGKILL);
  CHECK_FALSE(ProcessEnd::of(child->pid() > 0 ? child->pid() : 0x3fffffff, by_pidfd));
}
