#include <chrono>
#include <csignal>

#include <sys/stat.h>

#include "common/protocol/contract.hpp"
#include "common/protocol/messages.hpp"
#include "common/sys/process/secrecy.hpp"
#include "common/sys/socket.hpp"
#include "hooks/builder/broker_line.hpp"
#include "hooks/builder/input.hpp"
#include "hooks/import/import.hpp"
#include "hooks/importer/modes.hpp"
#include "hooks/importer/own_import.hpp"
#include "hooks/progress/progress_renderer.hpp"
#include "hooks/request/registries_conf.hpp"
#include "hooks/request/request.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kTellEvery{1};

class BrokerProgress final : public Progress {
 public:
  BrokerProgress(LogSink& log, const ContainerSpec& spec) : log_(log), bars_(spec.progress) {}
  ~BrokerProgress() override { end_bars(); }
  BrokerProgress(const BrokerProgress&) = delete;
  BrokerProgress& operator=(const BrokerProgress&) = delete;
  void phase(std::string_view text) noexcept override {
    end_bars();
    bars_.phase(text, StepBars::Clock::now());
  }
  void bytes(uint64_t done, uint64_t total) noexcept override {
    const auto now = StepBars::Clock::now();
    draw(bars_.bytes(done, total, now));
    tell(bars_.line(now));
    if (now - told_ < kTellEvery) return;
    told_ = now;
    (void)send_packet(builder_fd::kBroker, encode(ImportProgress{done, total}));
  }
  void layer(const LayerProgress& layer) noexcept override { bars_.layer(layer); }
  void note(std::string_view text) noexcept override { log_.write(LogLevel::info, text); }
  void finish(std::string_view) noexcept override { end_bars(); }
  [[nodiscard]] bool cancelled() const noexcept override { return broker_has_closed(); }

 private:
  void end_bars() noexcept {
    const auto now = StepBars::Clock::now();
    tell(bars_.last_line(now));
    draw(bars_.finish(now));
  }
  static void tell(const std::string& line) noexcept {
    if (!line.empty()) (void)send_packet(builder_fd::kBroker, encode(Note{LogLevel::info, line, true}));
  }
  static void draw(const std::string& bytes) noexcept {
    if (!bytes.empty()) (void)send_packet(builder_fd::kBroker, encode(Draw{bytes}));
  }
  LogSink& log_;
  StepBars bars_;
  StepBars::Clock::time_point told_{};
};

Result<void> import_and_send(const std::string& job, const std::string& other, LogSink& log) {
  TRY_ASSIGN(const BuilderData data, read_builder_data());
  TRY_ASSIGN(const EnrootConfig config, EnrootConfig::load(data.host, log));
  const std::string image = other.empty() ? data.spec.exact_image() : other;
  TRY_ASSIGN(ImportRequest request,
             make_import_request(image, config, credentials_environment(data), RuleFiles::of_user(data.host), log));
  if (image_kind(image) == ImageKind::registry) {
    request.progress = data.spec.progress;
    request.resolve = data.spec.resolve;
    return import_into_own_store(request, config, job, log);
  }
  BrokerProgress progress(log, data.spec);
  TRY_ASSIGN(const UnnamedImage made,
             import_to_unnamed_file(request, config.temp_path(), user_layer_cache(config), progress, log));
  TRY(put_into_parcel(builder_fd::kOutput, {made.file.get()}));
  return send_packet(builder_fd::kBroker, encode(ImportDone{made.digest, "", false}));
}

}  // namespace

int import_as_user(const std::string& job, const std::string& other) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  umask(022);
  const KeepSecrets secrets;
  BrokerLog log;
  const auto imported = import_and_send(job, other, log);
  if (imported) return 0;
  // Without a text: the importer that it started has told why.
  return imported.error().message().empty() ? 1 : tell_failure(imported.error());
}

}  // namespace situla
