// situla-saver: started by situla-broker, as the job user, with the descriptors of common/protocol/contract.hpp. An
// existing file is replaced in one moment, also when it is the image that the container was started from.
#include <csignal>

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/text.hpp"
#include "common/base/thrown.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/mount/id_maps.hpp"
#include "common/sys/process/process.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/config/enroot_config.hpp"
#include "hooks/export/export.hpp"

namespace situla {
namespace {

/// Nothing is drawn: the tasks have ended, and with them who looked at a terminal.
class SaveProgress final : public NullProgress {
 public:
  explicit SaveProgress(LogSink& log) : log_(log) {}
  void phase(std::string_view text) noexcept override { log_.write(LogLevel::debug, text); }
  void note(std::string_view text) noexcept override { log_.write(LogLevel::info, text); }
  [[nodiscard]] bool cancelled() const noexcept override { return broker_has_closed(); }

 private:
  LogSink& log_;
};

Result<ExportSource> take_source(const std::string& name) {
  ExportSource source;
  source.name = name;
  if (fcntl(saver_fd::kFiles, F_SETFD, FD_CLOEXEC) != 0) return fail_errno(errno, "descriptor of the container");
  // Before anything is received: that may get the number.
  if (fcntl(saver_fd::kImage, F_SETFD, FD_CLOEXEC) == 0) source.image = UniqueFd(saver_fd::kImage);
  TRY_ASSIGN(auto files, take_from_parcel(saver_fd::kFiles));
  source.directory = std::move(files[0]);
  if (files.size() > 1) source.image = std::move(files[1]);
  return source;
}

Result<void> save(LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  const std::string name = data.spec.name.empty() ? printable(data.spec.image) : data.spec.name;
  TRY_ASSIGN(const ExportSource source, take_source("container " + name));
  ExportOptions options = ExportOptions::of(config);
  options.path = data.spec.save;
  options.replace = true;
  // With a range it begins in its namespace.
  if (const auto root = own_id_range() ? Result<void>() : become_root_of_own_files(); !root)
    log.debug("saving with the rights of an ordinary user: " + root.error().message());
  SaveProgress progress(log);
  auto saved = export_container(source, options, progress, log);
  if (!saved) return fail(std::move(saved).error().with_context("--container-save " + printable(options.path)));
  log.info("exported container " + name + " to " + printable(options.path));
  return {};
}

int run() {
  // Signals of a step reach it in the step's cgroup; those that do not end the step are for the user's programs.
  for (const int number : {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM}) (void)std::signal(number, SIG_IGN);
  umask(022);
  BrokerLog log;
  const auto saved = with_thrown_errors([&] { return save(log); });
  return saved ? 0 : tell_failure(saved.error());
}

}  // namespace
}  // namespace situla

int main() {
  situla::take_program_name();
  return situla::run();
}
