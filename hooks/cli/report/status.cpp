// status: what is imported, waited for and prepared on this node, and how far it is.
#include <chrono>
#include <optional>
#include <ostream>

#include <unistd.h>

#include "common/protocol/contract.hpp"
#include "common/sys/users.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/report/record_text.hpp"
#include "hooks/cli/report/step_records.hpp"

namespace situla::cli {
namespace {

struct StatusOptions {
  bool json = false;
};

std::string name_of_user(uid_t uid) {
  const auto user = find_user(uid);
  return user && *user ? (*user)->name : std::to_string(uid);
}

Result<int> status(const Context& context, const StatusOptions& options) {
  const auto user = geteuid() == 0 ? std::nullopt : std::optional(geteuid());
  const std::vector<StepRecord> records = report::read_step_records(kReportsDirectory, user, context.log);
  std::ostream& out = context.streams.out;
  if (options.json) {
    for (const StepRecord& record : records)
      if (report::is_at_work(record)) out << record.json() << '\n';
    return 0;
  }
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const auto now = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
  const std::string table = report::status_table(records, now, name_of_user);
  out << (!table.empty() ? table
          : user         ? "nothing of yours is imported or prepared on this node\n"
                         : "nothing is imported or prepared on this node\n");
  return 0;
}

}  // namespace

void add_status(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "status", "Show which imports go on here, and how far they are", status);
  command.flag("--json", options.json, "Print the records of these steps, one JSON object in each line");
}

}  // namespace situla::cli
