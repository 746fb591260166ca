// list --fancy: the containers, and the processes that run in them, as a table that scripts cut. COMPAT.md section 3.
#include "hooks/run/running.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"

namespace situla::cli {
namespace {

constexpr size_t kColumns = 9;
using Row = std::array<std::string, kColumns>;

/// As ps(1) STIME: the time of a process of today, else the day, else the year.
std::string start_time(std::chrono::system_clock::time_point started) {
  const std::time_t now = std::time(nullptr);
  const std::time_t then = std::chrono::system_clock::to_time_t(started);
  std::tm today{}, day{};
  (void)localtime_r(&now, &today);
  (void)localtime_r(&then, &day);
  const char* format = "%H:%M";
  if (day.tm_yday != today.tm_yday) format = "%b%d";
  if (day.tm_year != today.tm_year) format = "%Y";
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &day)};
}

std::string two_digits(int64_t number) {
  return (number < 10 ? "0" : "") + std::to_string(number);
}

/// As ps(1) ETIME: [[DD-]hh:]mm:ss.
std::string elapsed_time(std::chrono::seconds elapsed) {
  const int64_t all = elapsed.count();
  const int64_t days = all / 86400, hours = all / 3600 % 24;
  std::string text;
  if (days > 0) text += two_digits(days) + "-";
  if (days > 0 || hours > 0) text += two_digits(hours) + ":";
  return text + two_digits(all / 60 % 60) + ":" + two_digits(all % 60);
}

Row row_of(const std::string& name, const RunningProcess& process) {
  return {name,
          std::to_string(process.pid),
          process.comm,
          process.state,
          start_time(process.started),
          elapsed_time(process.elapsed),
          std::to_string(process.mount_namespace),
          std::to_string(process.user_namespace),
          process.command};
}

/// Only the first row of a container shows its name.
void add_rows(std::vector<Row>& rows, const std::string& name, const std::optional<std::string>& path,
              const std::vector<RunningProcess>& processes) {
  std::string shown = name;
  for (const RunningProcess& process : processes) {
    if (process.container != path) continue;
    rows.push_back(row_of(shown, process));
    shown.clear();
  }
  if (!shown.empty() && path) rows.push_back({shown});
}

void print(const std::vector<Row>& rows, std::ostream& out) {
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < kColumns; ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace

Result<int> list_running(const Context& context, const std::vector<std::string>& names) {
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(context.config.data_path() + "/" + name);
  TRY_ASSIGN(const std::vector<RunningProcess> processes, running_processes(paths));
  std::vector<Row> rows = {{"NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND"}};
  for (size_t i = 0; i < names.size(); ++i) add_rows(rows, printable(names[i]), paths[i], processes);
  add_rows(rows, "<unknown>", std::nullopt, processes);
  print(rows, context.streams.out);
  return 0;
}

}  // namespace situla::cli
