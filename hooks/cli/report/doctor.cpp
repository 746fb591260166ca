// doctor: what this node, or every node of the cluster, can do, and how to fix what is missing.
#include "hooks/doctor/doctor.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <ostream>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/slurm.hpp"
#include "hooks/doctor/cluster/cluster.hpp"

namespace situla::cli {
namespace {

struct DoctorOptions {
  bool json = false, brief = false, cluster = false;
  bool all = false;  ///< beside a registry
  doctor::ClusterRequest request;
  uint32_t timeout = 30;  ///< seconds
  decltype(Actions::examine_registry) examine_registry = nullptr;
};

doctor::Colours colours_for(const Context& context) {
  const Environment& environment = context.invocation.environment;
  const std::string terminal = environment.get_or("TERM", "");
  const bool plain = !environment.get_or("NO_COLOR", "").empty() || terminal.empty() || terminal == "dumb";
  const bool shown = &context.streams.out == &std::cout && isatty(STDOUT_FILENO) != 0;
  return shown && !plain ? doctor::Colours::terminal : doctor::Colours::none;
}

/// This program as other nodes find it, where it is installed at the same place.
std::string program_for_nodes() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return self.filename() == "situla" ? self.string() : program_path();
}

Result<int> examine_cluster(const Context& context, const DoctorOptions& options) {
  doctor::ClusterRequest request = options.request;
  request.program = program_for_nodes();
  request.limit = std::chrono::seconds(options.timeout);
  TRY_ASSIGN(auto nodes, doctor::ask_cluster(request, without_filters(context.invocation.environment)));
  const doctor::ClusterReport report{std::move(nodes), geteuid() == 0};
  context.streams.out << (options.json ? report.json() : report.text(colours_for(context)));
  return report.failed() ? 1 : 0;
}

int print(const Context& context, const DoctorOptions& options, doctor::Report& report) {
  if (geteuid() != 0) address_to_user(report);
  context.streams.out << (options.json    ? report.json()
                          : options.brief ? report.brief()
                                          : report.text(colours_for(context)));
  return report.failed() ? 1 : 0;
}

/// origin: EnrootConfig::origin(). A variable is the caller's, a file its owner's.
std::string fix_of_setting(const std::string& origin, const std::string& fix) {
  const std::string file = origin.substr(0, origin.rfind(':'));
  const bool of_site = file.starts_with('/') && access(file.c_str(), W_OK) != 0;
  return of_site ? doctor::administrators_fix(fix) : fix;
}

/// enroot.conf and the ENROOT_* variables. What cannot be read at all was said before.
doctor::Section configuration_section(const Context& context) {
  using doctor::State;
  const EnrootConfig& config = context.config;
  doctor::Section section{"configuration", "enroot.conf and ENROOT_*", {}, true};
  if (const auto checked = config.check_flags(context.log); !checked)
    section.lines.push_back({"flags", State::fail, checked.error().message(), checked.error().hint()});
  for (const std::string& key : config.unknown_keys()) {
    const auto near = closest(key, EnrootConfig::known_keys());
    section.lines.push_back({"unknown-key", near ? State::warn : State::info,
                             key + " (" + config.origin(key) + "): nothing of Situla reads it",
                             near ? fix_of_setting(config.origin(key), "write " + std::string(*near)) : ""});
  }
  const std::string credentials = config.config_path() + "/.credentials";
  struct stat status {};
  if (stat(credentials.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    section.lines.push_back(
        {"credentials", State::warn, credentials + " is open to other users", "chmod 600 " + shell_quote(credentials)});
  if (section.lines.empty()) section.lines.push_back({"keys", State::ok, "all are known", ""});
  return section;
}

Result<int> examine_node(const Context& context, const DoctorOptions& options) {
  const std::string& registry = options.request.registry;
  const bool node = registry.empty() || options.all;
  const doctor::Places places = doctor::Places::installed();
  doctor::Report report =
      node ? doctor::examine(places, context.invocation.environment) : doctor::report_of_this_node();
  if (node && !options.brief) {
    const EnrootConfig& config = context.config;
    doctor::examine_store(report, places, context.invocation.environment);
    report.sections.push_back(configuration_section(context));
    doctor::examine_user(report, {config.data_path(), config.cache_path(), config.temp_path(), config.runtime_path()});
    doctor::examine_devices(report, places, context.invocation.environment);
  }
  if (!registry.empty())
    report.sections.push_back(
        options.examine_registry(registry, context.config, context.invocation.environment, context.log));
  return print(context, options, report);
}

Result<int> run(const Context& context, const DoctorOptions& options) {
  return options.cluster ? examine_cluster(context, options) : examine_node(context, options);
}

}  // namespace

void add_doctor(Program& program, Actions& actions) {
  const auto [command, options] =
      add_command(program, actions, "doctor", "Say what this node can do, and how to fix what is missing", run);
  command.footer("The exit status is 0 when all is well or there are only warnings, and 1 when a check fails.");
  options.examine_registry = actions.examine_registry;
  const Option json = command.flag("--json", options.json, "Print the report as JSON");
  const Option brief =
      command
          .flag("--brief", options.brief, "Print what slurmd logs at start: how images are mounted, GPUs, what fails")
          .excludes(json);
  const Option registry =
      command
          .option("--registry", options.request.registry,
                  "Try this registry, and nothing else: REGISTRY[/REPOSITORY[:TAG]], with your login and proxies")
          .excludes(brief);
  command.flag("--all", options.all, "With --registry: everything else, too").needs(registry);
  const Option cluster =
      command.flag("--cluster", options.cluster, "Run it on every node by srun, and compare the nodes").excludes(brief);
  command.option("-p,--partition", options.request.partition, "With --cluster: only nodes of this partition")
      .needs(cluster);
  command.option("-w,--nodelist", options.request.nodes, "With --cluster: only these nodes, as node[1-9]")
      .needs(cluster);
  command.option("-A,--account", options.request.account, "With --cluster: the account of the jobs").needs(cluster);
  command.option("--timeout", options.timeout, "With --cluster: seconds that a node is waited for (default: 30)")
      .needs(cluster)
      .value("SECONDS")
      .within(1, 3600);
}

}  // namespace situla::cli
