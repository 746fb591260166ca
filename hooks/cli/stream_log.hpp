// How do log lines look to the user of the command line? "[INFO] text", as scripts that read enroot's stderr expect.
#pragma once

#include <iosfwd>
#include <memory>

#include "common/base/log.hpp"

namespace spdlog {
class logger;
}

namespace situla::cli {

class StreamLog final : public LogSink {
 public:
  /// The stream must outlive the log. Debug lines are shown when verbose.
  StreamLog(std::ostream& stream, bool verbose);
  /// A "\nhint: ..." at the end of a message becomes a line of its own without the level.
  void write(LogLevel level, std::string_view message) noexcept override;

 private:
  std::shared_ptr<spdlog::logger> logger_;  // never empty
};

}  // namespace situla::cli
