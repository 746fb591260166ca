#include "hooks/builder/request.hpp"

#include <poll.h>

#include "common/protocol/messages.hpp"
#include "common/sys/file.hpp"
#include "common/sys/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_log.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/import/import.hpp"
#include "hooks/import/progress.hpp"
#include "hooks/import/registries_conf.hpp"
#include "hooks/import/request.hpp"
#include "hooks/import/step_bars.hpp"
#include "plugin/broker/contract.hpp"

namespace situla {
namespace {

/// XDG_* and HOME say where the credentials are; commands and credential helpers that know passwords are found by the
/// job's PATH, which the preparation of a container does without. They run as the user, who could run them as well:
/// nothing privileged is near, and every descriptor of ours is closed in them.
Environment credentials_environment(const BuilderData& data) {
  Environment environment = data.host;
  if (const auto path = data.job.get("PATH")) environment.set("PATH", *path);
  return environment;
}

Result<void> collect_and_write(int output, LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  // The rules that the importer will follow; logins for a mirror of the user's own would only be carried in vain.
  TRY_ASSIGN(ImportRequest request,
             make_import_request(data.spec.image, config, credentials_environment(data), RuleFiles::of_node(), log));
  request.terminal_columns = data.spec.terminal_columns;
  request.terminal_rows = data.spec.terminal_rows;
  TRY_ASSIGN(const std::string bytes, request.serialize());
  return write_all(output, bytes);
}

class BrokerProgress final : public Progress {
 public:
  BrokerProgress(LogSink& log, const ContainerSpec& spec)
      : log_(log), bars_({spec.terminal_columns, spec.terminal_rows}) {}
  ~BrokerProgress() override { draw(bars_.finish(StepBars::Clock::now())); }
  BrokerProgress(const BrokerProgress&) = delete;
  BrokerProgress& operator=(const BrokerProgress&) = delete;
  void phase(std::string_view text) noexcept override {
    draw(bars_.finish(StepBars::Clock::now()));
    bars_.phase(text, StepBars::Clock::now());
  }
  void bytes(uint64_t done, uint64_t total) noexcept override {
    draw(bars_.bytes(done, total, StepBars::Clock::now()));
  }
  void layer(const LayerProgress& layer) noexcept override { bars_.layer(layer); }
  void note(std::string_view text) noexcept override {
    draw(bars_.erase());
    log_.write(LogLevel::info, text);
  }
  void finish(std::string_view) noexcept override { draw(bars_.finish(StepBars::Clock::now())); }
  /// The broker closes its end when nobody waits any more; a moment later it kills.
  [[nodiscard]] bool cancelled() const noexcept override {
    pollfd broker{builder_fd::kBroker, 0, 0};
    return poll(&broker, 1, 0) > 0 && (broker.revents & POLLHUP) != 0;
  }

 private:
  static void draw(const std::string& bytes) noexcept {
    if (!bytes.empty()) (void)send_packet(builder_fd::kBroker, encode(Draw{bytes}));
  }
  LogSink& log_;
  StepBars bars_;
};

Result<void> import_and_send(LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  TRY_ASSIGN(const ImportRequest request, make_import_request(data.spec.image, config, credentials_environment(data),
                                                              RuleFiles::of_user(data.host), log));
  BrokerProgress progress(log, data.spec);
  TRY_ASSIGN(const UnnamedImage image,
             import_to_unnamed_file(request, config.temp_path(), user_layer_cache(config), progress, log));
  return send_packet(builder_fd::kBroker, encode(ImportDone{image.digest, ""}), {image.file.get()});
}

}  // namespace

int import_as_user() {
  const KeepSecrets secrets;
  BrokerLog log;
  const auto imported = import_and_send(log);
  return imported ? 0 : tell_failure(imported.error());
}

int write_import_request() {
  const KeepSecrets secrets;
  BrokerLog log;
  // Closed last: the end of its input makes the importer fail, and our message, which says why, has to be there before.
  const UniqueFd output(builder_fd::kOutput);
  const auto written = collect_and_write(output.get(), log);
  return written ? 0 : tell_failure(written.error());
}

}  // namespace situla
