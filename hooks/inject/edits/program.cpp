#include "hooks/inject/edits/program.hpp"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include <unistd.h>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kDefaultLimit{10};
constexpr const char* kPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kOciVersion = "1.0.2";
constexpr size_t kKeptOutput = 4096;

/// A directory with the config.json of an OCI bundle; goes away with this object.
class Bundle {
 public:
  static Result<Bundle> create(const std::string& root_path) {
    // Beside the root, which is on a file system that ends with this mount namespace, also when we are killed.
    const std::string beside = root_path.substr(0, root_path.rfind('/')) + "/situla-bundle-XXXXXX";
    for (std::string path : {beside, std::string("/dev/shm/situla-bundle-XXXXXX")}) {
      if (mkdtemp(path.data()) == nullptr) continue;
      Bundle bundle(path);
      const Json config = Json::object({{"ociVersion", kOciVersion}, {"root", Json::object({{"path", root_path}})}});
      TRY(write_file_atomically(path + "/config.json", to_text(config, {.indent = -1}), 0600));
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
  return to_text(Json::object({{"ociVersion", kOciVersion},
                               {"id", "situla-" + std::to_string(pid)},
                               {"status", "creating"},
                               {"pid", pid},
                               {"bundle", bundle},
                               {"root", root_path}}),
                 {.indent = -1});
}

std::string in_one_line(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split_nonempty(text, '\n')) lines.push_back(printable(trim(line)));
  return join(lines, "; ");
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

SpawnOptions prepare(const ProgramEdit& edit, int input) {
  SpawnOptions options;
  options.program = edit.path;
  options.arguments = edit.arguments.empty() ? std::vector<std::string>{edit.path} : edit.arguments;
  options.environment = edit.environment;
  const bool has_path = std::any_of(edit.environment.begin(), edit.environment.end(),
                                    [](const std::string& variable) { return variable.starts_with("PATH="); });
  if (!has_path) options.environment.emplace_back(kPath);
  options.fds = {{input, STDIN_FILENO}};
  options.new_session = true;
  options.no_new_privileges = true;
  return options;
}

/// said: the end of what it wrote.
Result<void> run(const ProgramEdit& edit, const ApplyTarget& target, std::string& said) {
  TRY(check_program(edit, target));
  TRY_ASSIGN(const Bundle bundle, Bundle::create(target.root_path));
  TRY_ASSIGN(const UniqueFd input, memory_file("state"));
  TRY(write_all(input.get(), state(bundle.path(), target.root_path)));
  if (lseek(input.get(), 0, SEEK_SET) != 0) return fail_errno(errno, "prepare its input");
  const auto limit = edit.limit.count() > 0 ? edit.limit : kDefaultLimit;
  const RunLimits limits{.time = limit, .error_bytes = kKeptOutput, .together = true, .guarded = true};
  TRY_ASSIGN(const ProgramRun done, run_program(prepare(edit, input.get()), limits));
  said = in_one_line(done.errors);
  if (!done.status)
    return fail(ErrorKind::failure, "killed, as it ran for more than " + std::to_string(limit.count()) + " s");
  if (!done.status->success()) return fail(ErrorKind::failure, done.status->text());
  return {};
}

}  // namespace

Result<void> run_program(const ProgramEdit& edit, const ApplyTarget& target, LogSink& log) {
  std::string said;
  auto done = run(edit, target, said);
  if (done) {
    if (!said.empty()) log.info(edit.path + ": " + said);
    return {};
  }
  done.error().with_code(ErrorCode::hook);
  if (said.empty()) return done;
  return fail(done.error().in_words(done.error().message() + "; it said: " + said));
}

}  // namespace situla
