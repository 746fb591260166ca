// enroot-mount [--root DIR] [--pass N] FSTAB|-...: what hooks and configuration scripts mount with, on their PATH. The
// same dialect and the same steps as every other mount of a container.
#include <iostream>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "hooks/mount/apply.hpp"
#include "hooks/mount/fstab.hpp"

namespace situla {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20U;
constexpr const char* kUsage = "Usage: enroot-mount [--root DIR] [--pass N] FSTAB|-...\n";

class ErrorLog final : public LogSink {
 public:
  void write(LogLevel level, std::string_view message) noexcept override {
    if (level <= LogLevel::detail) return;
    std::cerr << "enroot-mount: " << message << '\n';
  }
};

struct Arguments {
  std::string root = "/";
  int pass = 0;
  std::vector<std::string> files;
};

Result<Arguments> parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto pair = cut(words[i], '=');
    const std::string name(pair ? pair->first : words[i]);
    if (name != "--root" && name != "--pass") {
      if (words[i].starts_with('-') && words[i] != "-")
        return fail(ErrorKind::usage, "unknown option " + printable(words[i]));
      arguments.files.push_back(words[i]);
      continue;
    }
    if (!pair && i + 1 == words.size()) return fail(ErrorKind::usage, name + " needs a value");
    const std::string value = pair ? std::string(pair->second) : words[++i];
    if (name == "--root") {
      arguments.root = value;
    } else {
      const std::optional<int> pass = parse_integer(value);
      if (!pass) return fail(ErrorKind::usage, "invalid argument: --pass " + printable(value));
      arguments.pass = *pass;
    }
  }
  if (arguments.files.empty()) return fail(ErrorKind::usage, "no file given");
  return arguments;
}

Result<void> mount_file(const std::string& file, const Arguments& arguments, LogSink& log) {
  const bool standard_input = file == "-";
  const auto text = standard_input ? read_all(STDIN_FILENO, kMaxBytes) : read_file(file, kMaxBytes);
  if (!text) return fail(text.error());
  TRY_ASSIGN(const std::vector<MountStep> steps,
             parse_literal_fstab(*text, arguments.pass, standard_input ? "standard input" : file));
  TRY_ASSIGN(const RootDir root, RootDir::open(arguments.root));
  return mount_steps(steps, {root, arguments.root, current_directory()}, log);
}

Result<void> run(const std::vector<std::string>& words, LogSink& log) {
  auto arguments = parse(words);
  if (!arguments) {
    std::cerr << kUsage;
    return fail(arguments.error().with_code(ErrorCode::option));
  }
  while (arguments->root.size() > 1 && arguments->root.ends_with('/')) arguments->root.pop_back();
  for (const std::string& file : arguments->files) TRY(mount_file(file, *arguments, log));
  return {};
}

}  // namespace
}  // namespace situla

int main(int argc, char* argv[]) {
  situla::ErrorLog log;
  const auto done = situla::run(std::vector<std::string>(argv + 1, argv + argc), log);
  if (done) return 0;
  log.error(done.error().line());
  if (!done.error().hint().empty()) std::cerr << "hint: " << done.error().hint() << '\n';
  return 1;
}
