// How does a test run `start`? In a child that becomes the container's command.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/sys/file.hpp"
#include "hooks/run/launch.hpp"
#include "tests/userns/run_support.hpp"

namespace situla::test {

/// To standard error, as the command line's log does.
class ErrorLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level != LogLevel::debug) (void)write_all(2, std::string(message) + "\n");
  }
};

struct Ended {
  std::string output;
  int code = -1;  ///< exit code
  int signal = 0;
};

/// A container in a directory, with an entrypoint that shows what it is given.
struct StartScene : Scene {
  StartScene() {
    put_file(root + "/etc/rc",
             "cd / && unset OLDPWD || exit 1\nif [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n"
             "if [ $# -gt 0 ]; then\n    exec env ENTRY=ran \"$@\"\nelse\n    exec echo default command\nfi\n");
    host.set("ENROOT_RUNTIME_PATH", directory / "runtime");
    host.set("ENROOT_TEMP_PATH", directory / "temp");
    std::filesystem::create_directories(directory / "temp");
    request.root.kind = RootSource::Kind::directory;
  }

  [[noreturn]] void become() {
    ErrorLog log;
    request.root.path = root;
    if (request.root.kind == RootSource::Kind::image) request.root.image = std::move(*open_file(root, O_RDONLY));
    auto completed = complete(std::move(request), host, log);
    const Result<int> result = !completed ? fail(completed.error())
                               : dry_run  ? show_plan(std::move(*completed), log)
                                          : start_container(std::move(*completed), log);
    if (!result) (void)write_all(2, result.error().text() + "\n");
    _exit(result ? *result : 1);
  }

  /// As `start --dry-run` does.
  static Result<int> show_plan(ContainerRequest request, LogSink& log) {
    TRY_ASSIGN(const auto parts, plan_start(std::move(request), HookUse::command, log));
    for (const ContainerEdits& part : parts) TRY(write_all(1, describe(part)));
    return 0;
  }

  /// Without waiting for its end; its output goes to directory/output.
  pid_t begin(const std::vector<std::string>& command, const std::string& input = "") {
    request.command = command;
    put_file(directory / "input", input);
    const std::string output = directory / "output";
    put_file(output, "");
    const pid_t pid = fork();
    if (pid != 0) return pid;
    // A shell that runs the tests in the background has Ctrl-C ignored.
    for (const int number : {SIGINT, SIGQUIT}) (void)std::signal(number, SIG_DFL);
    (void)dup2(open((directory / "input").c_str(), O_RDONLY), 0);
    (void)dup2(open(output.c_str(), O_WRONLY | O_APPEND), 1);
    (void)dup2(1, 2);
    become();
  }

  Ended start(const std::vector<std::string>& command, const std::string& input = "") {
    const pid_t pid = begin(command, input);
    return end(pid, directory / "output");
  }

  /// A script in the site's hooks.d.
  void put_hook(const std::string& name, const std::string& text) const {
    put_file(sysconf + "/hooks.d/" + name, "#!/usr/bin/env bash\nset -eu\n" + text, 0755);
  }

  static Ended end(pid_t pid, const std::string& output) {
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return {get_file(output), WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0};
  }

  ContainerRequest request;
  bool dry_run = false;
};

}  // namespace situla::test
