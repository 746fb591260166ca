#include "hooks/cli/stream_log.hpp"

#include <array>
#include <memory>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/ostream_sink.h>

namespace situla::cli {
namespace {

/// enroot's spelling of the levels; spdlog's own are lower case.
class LevelName final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& destination) override {
    constexpr std::array<std::string_view, 7> kNames = {"DEBUG", "DEBUG", "INFO", "WARN", "ERROR", "ERROR", "OFF"};
    const std::string_view name = kNames.at(static_cast<size_t>(message.level));
    destination.append(name.data(), name.data() + name.size());
  }
  [[nodiscard]] std::unique_ptr<spdlog::custom_flag_formatter> clone() const override {
    return std::make_unique<LevelName>();
  }
};

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
    case LogLevel::detail:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

StreamLog::StreamLog(std::ostream& stream, bool verbose)
    : logger_(std::make_shared<spdlog::logger>(
          "situla", std::make_shared<spdlog::sinks::ostream_sink_st>(stream, /*force_flush=*/true))) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelName>('*').set_pattern("[%*] %v");
  logger_->set_formatter(std::move(formatter));
  logger_->set_level(verbose ? spdlog::level::debug : spdlog::level::info);
}

void StreamLog::write(LogLevel level, std::string_view message) noexcept {
  logger_->log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace situla::cli
