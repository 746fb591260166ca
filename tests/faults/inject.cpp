// Makes the n-th call of a program fail that can fail so, and says what was hit. As root; README.md has the faults.
//
//   inject --program NAME --fault FAULT [--argument WORD] [--inside LIBRARY]
//          [--call NAME] [--operand END] [--nth N] [--seconds S] --report FILE
//          (--attach PID | -- COMMAND...)
//
// --attach: with what PID starts, until SIGTERM comes; prints "ready" when it has begun. COMMAND: with what it starts,
// until it has ended; the exit status is the command's. The report is one JSON object.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/faults/tracer.hpp"

namespace {

using situla::faults::Order;
using situla::faults::Outcome;
using situla::faults::Tracer;

constexpr int kUsage = 2;

struct Arguments {
  Order order;
  std::string report;
  pid_t attach = 0;
  char** command = nullptr;
};

[[noreturn]] void refuse(const std::string& why) {
  std::cerr << "inject: " << why << '\n';
  exit(kUsage);
}

Arguments parse(int argc, char** argv) {
  constexpr option kOptions[] = {{"program", required_argument, nullptr, 'p'},
                                 {"fault", required_argument, nullptr, 'f'},
                                 {"argument", required_argument, nullptr, 'a'},
                                 {"inside", required_argument, nullptr, 'i'},
                                 {"call", required_argument, nullptr, 'c'},
                                 {"operand", required_argument, nullptr, 'o'},
                                 {"nth", required_argument, nullptr, 'n'},
                                 {"seconds", required_argument, nullptr, 's'},
                                 {"report", required_argument, nullptr, 'r'},
                                 {"attach", required_argument, nullptr, 't'},
                                 {nullptr, 0, nullptr, 0}};
  Arguments given;
  bool fault = false;
  for (int found = 0; (found = getopt_long(argc, argv, "+", kOptions, nullptr)) != -1;) {
    switch (found) {
      case 'p':
        given.order.program = optarg;
        break;
      case 'a':
        given.order.argument = optarg;
        break;
      case 'i':
        given.order.inside = optarg;
        break;
      case 'c':
        given.order.call = optarg;
        break;
      case 'o':
        given.order.operand = optarg;
        break;
      case 'n':
        given.order.nth = std::stoul(optarg);
        break;
      case 's':
        given.order.seconds = static_cast<unsigned>(std::stoul(optarg));
        break;
      case 'r':
        given.report = optarg;
        break;
      case 't':
        given.attach = std::stoi(optarg);
        break;
      case 'f': {
        const auto known = situla::faults::fault_of(optarg);
        if (!known) refuse(std::string("no such fault: ") + optarg);
        given.order.fault = *known;
        fault = true;
        break;
      }
      default:
        exit(kUsage);
    }
  }
  if (optind < argc) given.command = argv + optind;
  if (given.order.program.empty() || !fault || given.report.empty())
    refuse("--program, --fault and --report are needed");
  if ((given.attach != 0) == (given.command != nullptr)) refuse("either --attach or a command");
  return given;
}

std::string quoted(const std::string& text) {
  constexpr unsigned char kFirstPrintable = 0x20, kLastPrintable = 0x7e;
  std::string shown = "\"";
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte < kFirstPrintable || byte > kLastPrintable)
      shown += '?';
    else if (each == '"' || each == '\\')
      shown += std::string("\\") + each;
    else
      shown += each;
  }
  return shown + '"';
}

template <typename List>
std::string quoted_list(const List& list) {
  std::string shown;
  for (const std::string& text : list) shown += (shown.empty() ? "" : ", ") + quoted(text);
  return "[" + shown + "]";
}

void write_report(const std::string& path, const Outcome& outcome) {
  std::ofstream(path) << "{\"possible\": " << outcome.possible
                      << ", \"reached\": " << (outcome.reached ? "true" : "false")
                      << ", \"process\": " << outcome.process << ", \"call\": " << quoted(outcome.call)
                      << ", \"operand\": " << quoted(outcome.operand)
                      << ", \"arguments\": " << quoted_list(outcome.arguments)
                      << ", \"callers\": " << quoted_list(outcome.callers) << "}\n";
}

/// Waits until it is traced before it executes the command.
pid_t start_command(char** command, int& release) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) refuse("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char nothing = 0;
    if (read(ends[0], &nothing, 1) != 0) _exit(kUsage);
    close(ends[0]);
    execvp(command[0], command);
    perror(command[0]);
    _exit(127);
  }
  close(ends[0]);
  release = ends[1];
  return child;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments given = parse(argc, argv);
  Tracer tracer(given.order);
  int release = -1;
  const pid_t command = given.command != nullptr ? start_command(given.command, release) : 0;
  if (!tracer.seize(command != 0 ? command : given.attach)) refuse("the process cannot be traced");
  if (release >= 0) close(release);
  if (command == 0) std::cout << "ready" << std::endl;
  const int status = tracer.run(command);
  write_report(given.report, tracer.outcome());
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
