// The program inside every bundle: header.sh.in starts it with the bundle's path and the words of the user.
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>

#include <sys/utsname.h>
#include <unistd.h>

#include "hooks/bundle/start/start.hpp"
#include "hooks/doctor/probes.hpp"
#include "hooks/mount/image_mount.hpp"

namespace situla::bundle {
namespace {

/// As enroot's bundles print them.
class Messages final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level <= LogLevel::detail || (quiet && level == LogLevel::info)) return;
    const char* name = level == LogLevel::info ? "INFO" : level == LogLevel::warning ? "WARN" : "ERROR";
    std::fprintf(stderr, "[%s] %.*s\n", name, static_cast<int>(message.size()), message.data());
  }
  bool quiet = false;
};

std::string line(const std::string& what, const Result<void>& found, const std::string& otherwise) {
  std::string text = what + std::string(what.size() < 34 ? 34 - what.size() : 0, ' ') + ": ";
  if (found) return text + "OK\n";
  return text + "KO (" + otherwise + "): " + found.error().message() + "\n";
}

/// What this machine can do, one line each; 1 when it cannot run the bundle.
int verify_machine() {
  utsname machine{};
  (void)uname(&machine);
  std::string report = std::string("Kernel version: ") + machine.release + " " + machine.machine + "\n\n";
  const doctor::Ordinary user{geteuid(), getegid(), false};
  const Result<void> namespaces = doctor::try_user_namespace(user);
  const Result<void> overlay = doctor::try_overlay(user);
  report += line("User namespaces", namespaces, "required");
  report += line("Overlays in user namespaces", overlay, "required");
  report += line("FUSE for users (/dev/fuse)", fuse_available(), "optional, else every start extracts the image");
  std::cout << report;
  return namespaces && overlay ? 0 : 1;
}

Result<int> run(const std::string& path, const std::vector<std::string>& words, Environment environment,
                Messages& log) {
  TRY_ASSIGN(Scratch home, make_home());
  TRY_ASSIGN(const Options options, parse(words));
  TRY_ASSIGN(Bundle bundle, open_bundle(path, environment));
  log.quiet = options.quiet;
  const std::string name = path.substr(path.rfind('/') + 1);
  if (options.help) std::cout << usage(name, bundle.files.description);
  if (!options.help && options.information) std::cout << bundle.files.information;
  if (options.help || options.information) return 0;
  if (options.verify) return verify_machine();
  if (options.keep || options.extract) TRY(extract_bundle(bundle, log));
  if (options.extract) return 0;
  return start_bundle(std::move(bundle), home, options, std::move(environment), log);
}

}  // namespace
}  // namespace situla::bundle

int main(int argc, char** argv, char** envp) {
  using namespace situla;
  // The header asks whether programs run from here at all.
  if (argc == 2 && std::string_view(argv[1]) == "--situla-probe") return 0;
  if (argc < 2) return 1;
  (void)std::signal(SIGCHLD, SIG_DFL);  // whatever the caller does with its own children
  bundle::Messages log;
  const std::vector<std::string> words(argv + 2, argv + argc);
  const Result<int> status = bundle::run(argv[1], words, Environment::from_envp(envp), log);
  std::cout.flush();
  if (status) return *status;
  log.error(status.error().line());
  if (!status.error().hint().empty()) std::cerr << "hint: " << status.error().hint() << std::endl;
  return 1;
}
