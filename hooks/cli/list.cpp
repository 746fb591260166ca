// list: the containers under ENROOT_DATA_PATH; with --fancy the processes that run in them, as a table that scripts
// cut. COMPAT.md section 3. With --long, what they are.
#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <ostream>
#include <set>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "common/sys/directory.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/containers/container_identity.hpp"
#include "hooks/containers/running_processes.hpp"

namespace situla::cli {
namespace {

constexpr size_t kColumns = 10;
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
          process.command,
          process.image};
}

/// Only the first row of a container shows its name. `own`: which processes are its.
template <typename Own>
void add_rows(std::vector<Row>& rows, const std::string& name, const std::vector<RunningProcess>& processes, Own own) {
  std::string shown = name;
  for (const RunningProcess& process : processes) {
    if (!own(process)) continue;
    rows.push_back(row_of(shown, process));
    shown.clear();
  }
}

/// Those of named containers, of steps without a name, and what else runs in a container.
std::vector<Row> rows_of(const std::vector<NamedContainer>& containers, const std::vector<RunningProcess>& processes) {
  std::vector<Row> rows;
  for (const NamedContainer& container : containers) {
    const size_t before = rows.size();
    add_rows(rows, printable(container.name), processes,
             [&](const RunningProcess& process) { return process.container == container.path; });
    if (rows.size() == before) rows.push_back({printable(container.name)});
  }
  std::set<std::string> steps;
  for (const RunningProcess& process : processes)
    if (process.step) steps.insert(process.step->scratch());
  for (const std::string& step : steps)
    add_rows(rows, step, processes,
             [&](const RunningProcess& process) { return process.step && process.step->scratch() == step; });
  add_rows(rows, "<unknown>", processes,
           [](const RunningProcess& process) { return !process.container && !process.step; });
  return rows;
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

Result<int> list_running(const Context& context, const std::vector<NamedContainer>& containers) {
  std::vector<KnownContainer> known;
  for (const NamedContainer& container : containers) {
    const auto found = find_container(context.config, container.name);
    if (auto one = found ? KnownContainer::of(*found) : std::nullopt) known.push_back(std::move(*one));
  }
  TRY_ASSIGN(const std::vector<RunningProcess> processes, running_processes(known));
  std::vector<Row> rows = {{"NAME", "PID", "COMM", "STATE", "STARTED", "TIME", "MNTNS", "USERNS", "COMMAND"}};
  std::vector<Row> found = rows_of(containers, processes);
  // One more column than enroot has, where a step's container has no name that says of what it is.
  if (std::any_of(found.begin(), found.end(), [](const Row& row) { return !row.back().empty(); }))
    rows.front().back() = "IMAGE";
  rows.insert(rows.end(), std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
  print(rows, context.streams.out);
  return 0;
}

struct ListedContainer {
  NamedContainer container;
  std::optional<ContainerOrigin> origin;
  uint64_t bytes = 0;    ///< on disk
  size_t processes = 0;  ///< that run in it
};

Result<std::vector<ListedContainer>> descriptions(const Context& context,
                                                  const std::vector<NamedContainer>& containers) {
  std::vector<ListedContainer> found;
  std::vector<KnownContainer> known;
  for (const NamedContainer& each : containers) {
    auto container = find_container(context.config, each.name);
    if (!container) continue;  // removed meanwhile
    if (auto one = KnownContainer::of(*container)) known.push_back(std::move(*one));
    ListedContainer description{.container = std::move(*container), .origin = std::nullopt};
    if (description.container.directory) description.origin = origin_of(description.container.directory->get());
    description.bytes = disk_usage(description.container.path);
    found.push_back(std::move(description));
  }
  TRY_ASSIGN(const std::vector<RunningProcess> processes, running_processes(known));
  for (ListedContainer& description : found)
    description.processes =
        static_cast<size_t>(std::count_if(processes.begin(), processes.end(), [&](const RunningProcess& process) {
          return process.container == description.container.path;
        }));
  return found;
}

std::string date_of(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm day{};
  (void)localtime_r(&seconds, &day);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &day)};
}

Result<int> list_long(const Context& context, const std::vector<NamedContainer>& containers) {
  TRY_ASSIGN(const std::vector<ListedContainer> found, descriptions(context, containers));
  std::vector<Row> rows = {{"NAME", "SIZE", "MADE", "RUNNING", "IMAGE"}};
  for (const ListedContainer& each : found)
    rows.push_back({printable(each.container.name), format_size(each.bytes),
                    each.origin ? date_of(each.origin->made, "%Y-%m-%d %H:%M") : "-",
                    each.processes == 0 ? "-" : std::to_string(each.processes),
                    each.origin ? each.origin->image : "-"});
  print(rows, context.streams.out);
  return 0;
}

Result<int> list_as_json(const Context& context, const std::vector<NamedContainer>& containers) {
  TRY_ASSIGN(const std::vector<ListedContainer> found, descriptions(context, containers));
  Json list = Json::list();
  for (const ListedContainer& each : found) {
    const bool layered = each.container.kind == NamedContainer::Kind::layered;
    Json item = Json::object({{"name", each.container.name},
                              {"path", each.container.path},
                              {"kind", layered ? "layered" : "tree"},
                              {"bytes", each.bytes},
                              {"processes", uint64_t{each.processes}}});
    item.add("image", each.origin ? Json(each.origin->image) : Json());
    item.add("made", each.origin ? Json(date_of(each.origin->made, "%Y-%m-%dT%H:%M:%S%z")) : Json());
    list.add(std::move(item));
  }
  context.streams.out << to_text(list, {.indent = 2, .ascii = true});
  return 0;
}

struct ListOptions {
  bool fancy = false, long_list = false, json = false;
};

Result<int> list(const Context& context, const ListOptions& options) {
  if (options.fancy + options.long_list + options.json > 1)
    return fail(
        Error(ErrorKind::usage, "list: --fancy, --long and --json exclude each other").with_code(ErrorCode::option));
  TRY_ASSIGN(const std::vector<NamedContainer> containers, list_containers(context.config));
  if (options.fancy) return list_running(context, containers);
  if (options.long_list) return list_long(context, containers);
  if (options.json) return list_as_json(context, containers);
  for (const NamedContainer& container : containers) context.streams.out << container.name << '\n';
  return 0;
}

}  // namespace

void add_list(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "list", "List the containers", list);
  command.flag("-f,--fancy", options.fancy, "Show the processes that run in them");
  command.flag("-l,--long", options.long_list, "Show size on disk, when and of which image they were made");
  command.flag("--json", options.json, "For programs: the same, with sizes in bytes");
}

}  // namespace situla::cli
