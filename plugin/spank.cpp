// Where does Slurm enter? The entry points of spank_situla.so; the only file that includes
// slurm_version.hpp, so it has all that asks Slurm for something.
//
// Context by context: srun, sbatch and salloc register and check the options; slurmstepd (root) starts the broker in
// init_post_opt; each task (job user) joins its container in task_init; the last task_exit ends the container. In
// slurmd's prolog and epilog (root) the job's image is begun, and what is left of the job ended.

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include <unistd.h>

#include "common/base/installation.hpp"
#include "common/base/text.hpp"
#include "common/protocol/slurm_inside.hpp"
#include "common/spec/environment.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/plugin_arguments.hpp"
#include "plugin/client.hpp"
#include "plugin/environment_file.hpp"
#include "plugin/node_report.hpp"
#include "plugin/options.hpp"
#include "plugin/parts.hpp"
#include "plugin/pin.hpp"
#include "plugin/prolog.hpp"
#include "plugin/slurm_version.hpp"
#include "plugin/step_monitor.hpp"
#include "plugin/step_session.hpp"
#include "plugin/terminal.hpp"

#define SITULA_EXPORT extern "C" __attribute__((visibility("default")))

// SPANK_PLUGIN(situla, 1) compiled as C++ gives these internal linkage; declared first, they are found by dlsym().
SITULA_EXPORT const char plugin_name[];
SITULA_EXPORT const char plugin_type[];
SITULA_EXPORT const unsigned int plugin_version;
SITULA_EXPORT const unsigned int spank_plugin_version;
SPANK_PLUGIN(situla, 1)

extern "C" char** environ;
/// Slurm's own (src/common/read_config.h), in srun: no part of its API, so it may be missing.
extern "C" uint16_t* slurm_get_srun_port_range() __attribute__((weak));

namespace situla {
namespace {

// A SPANK callback has no user data, so what spans callbacks lives here: made in slurm_spank_init, freed in
// slurm_spank_exit, copied to the tasks by fork. A plain pointer: a plugin that is dlopen()ed into slurmd must have no
// global constructors.
struct PluginState {
  PluginConfig config;
  ContainerOptions options;
  std::optional<ContainerSpec> spec;
  std::optional<StepSession> session;
  std::optional<StepMonitor> monitor;
  std::vector<std::string> parts;    ///< in srun: ContainerOptions::part() of each
  std::set<std::string> images;      ///< in srun: of all parts
  std::optional<Error> start_error;  ///< why there is no session; reported by the tasks, where srun's user sees it
  bool sound = true;  ///< false: a callback before the tasks failed, and what the user asked for may have been lost
  uint32_t tasks_left = 0;
};
constinit PluginState* g_state = nullptr;

constexpr std::chrono::milliseconds kFinishLimit{10000};
constexpr std::chrono::milliseconds kEpilogLimit{120000};
constexpr std::chrono::milliseconds kPinLimit{5000};
constexpr std::chrono::milliseconds kMonitorLimit{2000};

/// Messages for the user: slurm_spank_log() reaches srun's stderr, from slurmstepd as well; slurm_info() slurmd's log.
class SlurmLog final : public LogSink {
 public:
  /// Line by line: what a user's process says must not look like a line of slurmd's own.
  void write(LogLevel level, std::string_view message) noexcept override {
    for (bool more = true; more;) {
      const size_t end = message.find('\n');
      more = end != std::string_view::npos;
      write_line(level, message.substr(0, end));
      message.remove_prefix(more ? end + 1 : message.size());
    }
  }

 private:
  static void write_line(LogLevel level, std::string_view line) noexcept {
    const int size = static_cast<int>(line.size());
    if (level == LogLevel::error)
      slurm_error("situla: %.*s", size, line.data());
    else if (level == LogLevel::debug)
      slurm_debug("situla: %.*s", size, line.data());
    else if (level == LogLevel::detail)
      slurm_info("situla: %.*s", size, line.data());
    else
      slurm_spank_log("situla: %.*s", size, line.data());
  }
};

void report(const Error& error) {
  SlurmLog log;
  if (error.message().empty()) return;
  log.error(error.line());
  if (!error.hint().empty()) log.error("hint: " + error.hint());
}

/// No exception may cross into Slurm's C code: the body's Result becomes a status, everything else an error message.
template <typename Body>
int guarded(Body body) noexcept {
  try {
    const Result<void> result = body();
    if (result) return ESPANK_SUCCESS;
    report(result.error());
  } catch (const std::exception& exception) {
    slurm_error("situla: internal error: %s", exception.what());
  } catch (...) {
    slurm_error("situla: internal error");
  }
  // Negative: slurmstepd ignores a positive status of task_init and runs the task without its container.
  return -1;
}

/// For the callbacks before the tasks. slurmstepd goes on when an option is refused, and after every error if
/// plugstack.conf calls the plugin optional; the tasks must not, as if no container had been asked for.
template <typename Body>
int guarded_start(Body body) noexcept {
  const int status = guarded([&]() -> Result<void> {
    Result<void> result = body();
    if (!result && g_state != nullptr && !g_state->start_error) g_state->start_error = result.error();
    return result;
  });
  if (status != ESPANK_SUCCESS && g_state != nullptr) g_state->sound = false;
  return status;
}

int on_option(int id, const char* value, int /*remote*/) {
  return guarded_start([&]() -> Result<void> {
    if (g_state == nullptr) return {};
    return g_state->options.set(option_table()[static_cast<size_t>(id)], value == nullptr ? "" : value);
  });
}

/// `what` as in "ask Slurm for the job id".
Result<void> checked(spank_err_t status, const std::string& what) {
  return status == ESPANK_SUCCESS
             ? Result<void>()
             : fail(Error(ErrorKind::failure, what + ": " + spank_strerror(status)).with_code(ErrorCode::slurm));
}

Result<void> register_options(spank_t spank) {
  for (const OptionInfo& row : option_table()) {
    // Slurm copies the strings, but takes them as char*.
    spank_option option{const_cast<char*>(row.name),
                        const_cast<char*>(row.argument),
                        const_cast<char*>(row.usage),
                        row.argument != nullptr ? 1 : 0,
                        static_cast<int>(&row - option_table().data()),
                        on_option};
    TRY(checked(spank_option_register(spank, &option), std::string("register option --") + row.name));
  }
  return {};
}

bool runs_containers(spank_context_t context) {
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE;
}

template <typename T>
Result<T> item(spank_t spank, spank_item_t which, const char* what) {
  T value{};
  TRY(checked(spank_get_item(spank, which, &value), std::string("ask Slurm for ") + what));
  return value;
}

Result<Environment> job_environment(spank_t spank) {
  TRY_ASSIGN(char** const envp, item<char**>(spank, S_JOB_ENV, "the job's environment"));
  return Environment::from_envp(envp);
}

/// The batch script is a file in slurmd's spool: it must be seen inside, at the same path, to be run there. A container
/// that runs already cannot get it any more.
Result<void> add_batch_script(spank_t spank, ContainerSpec& spec) {
  if (spec.name_flag == NameFlag::exec)
    return fail(Error(ErrorKind::usage, "--container-name=" + printable(spec.name) +
                                            ":exec: a batch script cannot join a container that runs already")
                    .with_code(ErrorCode::option)
                    .with_hint("use the option with srun, in the script"));
  if (spec.name_flag == NameFlag::automatic) spec.name_flag = NameFlag::no_exec;
  int argc = 0;
  char** argv = nullptr;
  TRY(checked(spank_get_item(spank, S_JOB_ARGV, &argc, &argv), "ask Slurm for the batch script"));
  if (argc < 1) return {};
  MountOption script;
  script.kind = MountOption::Kind::script;
  script.source = script.target = argv[0];
  spec.mounts.push_back(std::move(script));
  return {};
}

/// The parts of a heterogeneous step have an image each, and nodes of their own.
bool has_parts(const Environment& job) {
  return job.has("SLURM_HET_SIZE") || job.has("SLURM_PACK_SIZE");
}

ImageOrigin image_origin(std::string_view image) {
  const ImageKind kind = image_kind(image);
  if (image.empty()) return ImageOrigin::none;
  if (kind == ImageKind::path) return ImageOrigin::file;
  return kind == ImageKind::registry ? ImageOrigin::registry : ImageOrigin::user;
}

Result<StepRequest> step_request(spank_t spank, uint32_t step_id, Environment& environment, ContainerSpec& spec) {
  StepRequest request;
  request.step_id = step_id;
  TRY_ASSIGN(request.job_id, item<uint32_t>(spank, S_JOB_ID, "the job id"));
  TRY_ASSIGN(request.uid, item<uid_t>(spank, S_JOB_UID, "the job's user"));
  TRY_ASSIGN(request.gid, item<gid_t>(spank, S_JOB_GID, "the job's group"));
  gid_t* groups = nullptr;
  int group_count = 0;
  if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &group_count) == ESPANK_SUCCESS && groups != nullptr)
    request.groups.assign(groups, groups + group_count);
  TRY_ASSIGN(request.local_tasks, item<uint32_t>(spank, S_JOB_LOCAL_TASK_COUNT, "the number of local tasks"));
  TRY_ASSIGN(request.all_tasks, item<uint32_t>(spank, S_JOB_TOTAL_TASK_COUNT, "the number of tasks"));
  TRY_ASSIGN(request.node, item<uint32_t>(spank, S_JOB_NODEID, "the node's number"));
  TRY_ASSIGN(request.nodes, item<uint32_t>(spank, S_JOB_NNODES, "the number of nodes"));
  // The parts of a heterogeneous step have one number, one terminal, and may have an image each.
  const bool parts = has_parts(environment);
  use_terminal(environment, request.node, request.nodes, spec);
  if (parts) spec.progress.columns = 0;
  if (parts) request.nodes = 1;
  if (const char* slurm_conf = getenv("SLURM_CONF")) request.slurm_conf = slurm_conf;
  const bool job_scope = g_state->config.scope == ContainerScope::job;
  if (!spec.name.empty())
    spec.directory = "pyxis_" + (job_scope ? std::to_string(request.job_id) + "_" : "") + spec.name;
  if (spec.entrypoint == Tristate::unset)
    spec.entrypoint = g_state->config.execute_entrypoint ? Tristate::yes : Tristate::no;
  for (std::string* path : {&spec.workdir, &spec.save}) *path = expand_home(*path, environment);
  request.origin = image_origin(spec.image);
  request.named = !spec.name.empty();
  request.job_scope = job_scope;
  request.save = !spec.save.empty();
  request.slurm_inside = spec.slurm_inside && !spec.prefetch;
  request.prefetch = spec.prefetch;
  const ImageKind kind = image_kind(spec.image);
  const bool fetched =
      request.origin == ImageOrigin::registry || kind == ImageKind::docker_daemon || kind == ImageKind::podman;
  if (const PluginConfig& config = g_state->config; fetched && !config.importer.empty()) {
    request.origin = ImageOrigin::user;
    request.importer = config.importer;
    request.importer_runtime = config.runtime_path;
  }
  request.use_squashfuse = g_state->config.use_squashfuse;
  request.image = printable(spec.image);
  environment.unset(kMonitorVariable);
  // A cluster's own program decides itself what a tag means.
  if (request.importer.empty())
    use_pinned_image(environment, spec);
  else
    environment.unset(kDigestVariable);
  request.spec = spec.serialize();
  return request;
}

/// On the node, as root: decides whether this step has a container, and starts its broker.
Result<void> start_session(spank_t spank) {
  TRY_ASSIGN(const uint32_t step_id, item<uint32_t>(spank, S_JOB_STEPID, "the step id"));
  if (step_id == SLURM_EXTERN_CONT) return {};
  if (step_id == SLURM_BATCH_SCRIPT && !g_state->config.sbatch_support) return {};
  TRY_ASSIGN(Environment environment, job_environment(spank));
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto value = environment.get(name);
    return value ? std::optional<std::string>(*value) : std::nullopt;
  };
  const bool has_part = step_id != SLURM_BATCH_SCRIPT && environment.has(kPartsVariable);
  if (step_id == SLURM_BATCH_SCRIPT) TRY(g_state->options.apply_submitted(lookup));
  if (has_part) {
    TRY_ASSIGN(const uint32_t job, item<uint32_t>(spank, S_JOB_ID, "the job id"));
    TRY(use_own_part(g_state->options, lookup, job));
  } else {
    g_state->options.apply_sums(lookup);
    TRY(take_environment_file(g_state->options, lookup));
  }
  environment.unset(kPartsVariable);
  TRY(g_state->options.use_outer_container(lookup));
  TRY(g_state->options.apply_environment(lookup));
  TRY_ASSIGN(g_state->spec, g_state->options.finish());
  if (!g_state->spec) return {};
  if (step_id == SLURM_BATCH_SCRIPT) TRY(add_batch_script(spank, *g_state->spec));
  TRY_ASSIGN(StepRequest request, step_request(spank, step_id, environment, *g_state->spec));
  g_state->tasks_left = request.local_tasks;
  TRY_ASSIGN(g_state->session, StepSession::start(std::move(request), environment.block()));
  return {};
}

std::optional<std::string> own_variable(const std::string& name) {
  const char* value = getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// In sbatch and salloc: ContainerOptions::pyxis_variables().
Result<void> hand_on_as_pyxis(spank_t spank) {
  for (const auto& [name, value] : g_state->options.pyxis_variables()) {
    TRY(checked(spank_job_control_setenv(spank, name.c_str(), value.c_str(), 1),
                "set variable " + name + " for the job"));
    setenv(name.c_str(), value.c_str(), 1);
  }
  return {};
}

/// The job's prolog begins what its steps will need. srun within a job finds it begun, or comes too late for a prolog.
Result<void> tell_prolog(spank_t spank) {
  const bool allocates_only = spank_context() == S_CTX_ALLOCATOR;
  if (!g_state->spec || (!allocates_only && own_variable("SLURM_JOB_ID"))) return {};
  const std::string value = early_image(*g_state->spec, g_state->config, allocates_only, own_variable);
  if (value.empty()) return {};
  return checked(spank_job_control_setenv(spank, kPrologVariable, value.c_str(), 1),
                 "tell the job's prolog of the image");
}

/// Where nodes find who speaks for all of them. Without it each speaks for itself.
void open_monitor() {
  std::optional<PortRange> ports;
  // SrunPortRange of slurm.conf: two numbers, or none.
  const uint16_t* const range = slurm_get_srun_port_range != nullptr ? slurm_get_srun_port_range() : nullptr;
  if (range != nullptr && range[0] != 0) ports = PortRange{range[0], range[1]};
  if (auto monitor = StepMonitor::listen(ports)) g_state->monitor = std::move(*monitor);
}

/// On the client: everything that can be known to be wrong is said before the job is queued.
Result<void> check_on_client(spank_t spank) {
  SlurmLog log;
  g_state->options.take_from_parts_before();
  if (spank_context() == S_CTX_ALLOCATOR) TRY(g_state->options.check_for_allocation());
  if (spank_context() == S_CTX_LOCAL) TRY(g_state->options.use_outer_container(own_variable));
  TRY(read_environment_file(g_state->options, log));
  TRY(g_state->options.apply_environment(own_variable));
  TRY_ASSIGN(g_state->spec, g_state->options.finish());
  for (const auto& [variable, sum] : g_state->options.sums()) {
    if (sum.empty())
      unsetenv(variable.c_str());
    else
      setenv(variable.c_str(), sum.c_str(), 1);
  }
  for (const std::string& line : g_state->options.warnings()) log.info(line);
  if (g_state->spec && spank_context() == S_CTX_LOCAL) announce_terminal();
  if (g_state->spec) g_state->images.insert(g_state->spec->image);
  if (spank_context() == S_CTX_LOCAL) {
    if (g_state->parts.empty()) unsetenv(kMonitorVariable);
    TRY(hand_on_part(g_state->options, g_state->parts));
    // What is set later only the first part's nodes hear.
    if (g_state->parts.size() == 2 && !g_state->images.empty()) open_monitor();
  }
  TRY(tell_prolog(spank));
  return spank_context() == S_CTX_ALLOCATOR ? hand_on_as_pyxis(spank) : Result<void>();
}

/// situla-monitor, for a step of several nodes, or of parts.
void run_monitor(uint32_t nodes) {
  if (!g_state->monitor && nodes > 1) open_monitor();
  if (!g_state->monitor) return;
  const uint32_t speakers = g_state->parts.size() > 1 ? 0 : nodes;
  // Parts may have different ones.
  const bool is_one = g_state->images.size() == 1;
  const auto run = g_state->monitor->run(speakers, is_one ? *g_state->images.begin() : "images");
  if (run) return;
  // No node tries then; of a heterogeneous step, whose parts know of it already, nobody waits.
  g_state->monitor.reset();
  unsetenv(kMonitorVariable);
  SlurmLog().debug("every node tells for itself what goes on there: " + run.error().message());
}

/// In srun, when the nodes are known and before the environment goes to them.
Result<void> prepare_nodes(spank_t spank) {
  if (g_state->images.empty()) return {};
  uint32_t nodes = 0;
  const spank_err_t status = spank_get_item(spank, S_JOB_NNODES, &nodes);
  // A Slurm that does not tell srun: then every node asks for itself.
  if (status != ESPANK_NOT_AVAIL && status != ESPANK_NOT_REMOTE)
    TRY(checked(status, "ask Slurm for the number of nodes"));
  run_monitor(nodes);
  if (!g_state->spec) return {};
  PinnedStep step;
  // Slurm tells of the step's nodes; another step of the job may run on others.
  const char* const of_job = getenv("SLURM_JOB_NUM_NODES");
  const auto job_nodes = parse_unsigned(of_job == nullptr ? "" : of_job);
  const bool pins = g_state->images.size() == 1 && std::max<uint64_t>(nodes, job_nodes.value_or(0)) > 1 &&
                    g_state->config.importer.empty() && g_state->spec->pinned.empty();
  if (pins && spank_get_item(spank, S_JOB_ID, &step.job) == ESPANK_SUCCESS) step.image = g_state->spec->image;
  step.resolve = g_state->spec->resolve;
  if (const std::string warning = pin_image(step, kPinLimit); !warning.empty()) SlurmLog().warning(warning);
  return {};
}

/// Each node writes its own container. Said once for the step.
Result<void> warn_of_shared_save(spank_t spank, LogSink& log) {
  if (g_state->spec->save.empty()) return {};
  TRY_ASSIGN(const uint32_t task, item<uint32_t>(spank, S_TASK_GLOBAL_ID, "the task's number"));
  TRY_ASSIGN(const uint32_t nodes, item<uint32_t>(spank, S_JOB_NNODES, "the number of nodes"));
  if (task == 0 && nodes > 1)
    log.warning("--container-save " + printable(g_state->spec->save) + ": each of the " + std::to_string(nodes) +
                " nodes saves its container there; where they share the directory, the last one's stays");
  return {};
}

/// Of ours, in any task: an srun, sbatch or salloc in it is told anew.
Result<void> forget_own_variables(spank_t spank) {
  for (const char* name : {kTerminalVariable, kDigestVariable, kMonitorVariable, kPartsVariable, kPrologVariableInJob,
                           kSameContainerVariable})
    spank_unsetenv(spank, name);
  return {};
}

Result<void> apply_to_task(spank_t spank, const JoinedTask& task) {
  TRY(forget_own_variables(spank));
  for (const std::string& name : task.unset)
    TRY(checked(spank_unsetenv(spank, name.c_str()), "unset variable " + printable(name) + " for the task"));
  for (const auto& [name, value] : task.set.entries())
    TRY(checked(spank_setenv(spank, name.c_str(), value.c_str(), 1),
                "set variable " + printable(name) + " for the task"));
  return {};
}

/// In a task; an empty message: another task of this node says it.
Result<void> enter_container(spank_t spank, const Environment& environment, MonitorLine* monitor) {
  const bool first = environment.get_or("SLURM_LOCALID", "0") == "0";
  if (g_state != nullptr && g_state->start_error)
    return first ? fail(*g_state->start_error) : fail(ErrorKind::cancelled, "");
  if (g_state == nullptr || !g_state->sound) {
    if (!first) return fail(ErrorKind::cancelled, "");
    return fail(Error(ErrorKind::failure, "the plugin could not be started on this node")
                    .with_code(ErrorCode::installation)
                    .with_hint("the log of slurmd says why"));
  }
  if (!g_state->session) return forget_own_variables(spank);
  SlurmLog log;
  TRY_ASSIGN(const JoinedTask task, join_container(*g_state->session, *g_state->spec, environment, monitor, log));
  TRY(warn_of_shared_save(spank, log));
  return apply_to_task(spank, task);
}

/// The same; srun may say it for all nodes, and then it is in the node's log alone.
Result<void> start_task(spank_t spank) {
  TRY_ASSIGN(Environment environment, job_environment(spank));
  auto monitor = MonitorLine::of(environment);
  // Hooks get what is left.
  environment.unset(kMonitorVariable);
  environment.unset(kPartsVariable);
  Result<void> entered = enter_container(spank, environment, monitor ? &*monitor : nullptr);
  if (entered || entered.error().message().empty() || !monitor || !monitor->tell_failure(entered.error()))
    return entered;
  SlurmLog().write(LogLevel::detail, entered.error().text());
  return fail(ErrorKind::cancelled, "");
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

/// When slurmd starts: what this node does with images, and what is wrong here, while nobody waits for a job. Nothing
/// of it keeps slurmd from starting: a node without containers still has other jobs to run.
int init_in_slurmd(int argc, char** argv) {
  (void)guarded([&]() -> Result<void> {
    if (const auto config = PluginConfig::parse({argv, static_cast<size_t>(argc)}); !config) report(config.error());
    const char* slurm_conf = getenv("SLURM_CONF");
    TRY_ASSIGN(const NodeReport node, examine_node(program_path(), slurm_conf == nullptr ? "" : slurm_conf));
    slurm_info("situla: " SITULA_VERSION ": %s", node.images.c_str());
    for (const std::string& line : node.errors) slurm_error("situla: %s", line.c_str());
    return gather_inventory();
  });
  return ESPANK_SUCCESS;
}

void end_session() {
  if (g_state == nullptr || !g_state->session) return;
  SlurmLog log;
  const auto finished = g_state->session->finish(kFinishLimit, log);
  if (!finished) return report(finished.error());
  // One line for the administrator, in the node's log.
  if (finished->starts_with('{')) return slurm_info("situla: %s", finished->c_str());
  if (!finished->empty() && g_state->spec)
    slurm_info("situla: image=%s name=%s %s", or_dash(printable(g_state->spec->image)).c_str(),
               or_dash(printable(g_state->spec->name)).c_str(), finished->c_str());
}

/// In slurmd's prolog, which goes on at once: Slurm calls nothing but this.
Result<void> begin_job(spank_t spank, std::span<const char* const> arguments) {
  const auto value = own_variable(kPrologVariableInProlog);
  if (!value) return {};
  TRY_ASSIGN(const PluginConfig config, PluginConfig::parse(arguments));
  TRY_ASSIGN(const uint32_t job, item<uint32_t>(spank, S_JOB_ID, "the job id"));
  TRY_ASSIGN(const uid_t user, item<uid_t>(spank, S_JOB_UID, "the job's user"));
  TRY_ASSIGN(const auto import, job_import(*value, config, job, user));
  return import ? start_job_import(import->request, import->environment) : Result<void>();
}

/// In slurmd's epilog: Slurm calls nothing but this, without the job's environment.
Result<void> end_job(spank_t spank, std::span<const char* const> arguments) {
  TRY_ASSIGN(const PluginConfig config, PluginConfig::parse(arguments));
  TRY_ASSIGN(const uint32_t job, item<uint32_t>(spank, S_JOB_ID, "the job id"));
  TRY_ASSIGN(const uid_t user, item<uid_t>(spank, S_JOB_UID, "the job's user"));
  return clean_up_after_job(job, user, config.scope == ContainerScope::job, kEpilogLimit);
}

}  // namespace
}  // namespace situla

using situla::g_state;
using situla::guarded;
using situla::guarded_start;
using situla::Result;

SITULA_EXPORT int slurm_spank_init(spank_t spank, int argc, char** argv) {
  if (spank_context() == S_CTX_SLURMD) return situla::init_in_slurmd(argc, argv);
  return guarded_start([&]() -> Result<void> {
    if (!situla::runs_containers(spank_context())) return {};
    delete std::exchange(g_state, new situla::PluginState);
    TRY_ASSIGN(g_state->config, situla::PluginConfig::parse({argv, static_cast<size_t>(argc)}));
    // sbatch and salloc know no options then, and say so; what their users set for the steps inside is not looked at.
    if (spank_context() == S_CTX_ALLOCATOR && !g_state->config.sbatch_support) {
      delete std::exchange(g_state, nullptr);
      return {};
    }
    if (spank_context() == S_CTX_LOCAL)
      for (const std::string& name : situla::ContainerOptions::unset_by_script(situla::own_variable))
        unsetenv(name.c_str());
    if (spank_context() == S_CTX_LOCAL) g_state->options.inherit_environment(situla::own_variable);
    if (spank_remote(spank) != 1) g_state->options.inherit_sums(situla::own_variable);
    return situla::register_options(spank);
  });
}

SITULA_EXPORT int slurm_spank_job_prolog(spank_t spank, int argc, char** argv) {
  (void)guarded([&] { return situla::begin_job(spank, {argv, static_cast<size_t>(argc)}); });
  // For a prolog that fails Slurm drains the node. The steps fetch the image themselves.
  return ESPANK_SUCCESS;
}

SITULA_EXPORT int slurm_spank_job_epilog(spank_t spank, int argc, char** argv) {
  (void)guarded([&] { return situla::end_job(spank, {argv, static_cast<size_t>(argc)}); });
  // For an epilog that fails Slurm drains the node, and a user decides whether his containers can be removed.
  return ESPANK_SUCCESS;
}

SITULA_EXPORT int slurm_spank_init_post_opt(spank_t spank, int, char**) {
  return guarded_start([&]() -> Result<void> {
    if (g_state == nullptr || !g_state->sound) return {};
    if (spank_remote(spank) != 1) return situla::check_on_client(spank);
    // An error here would be logged on the node only: the tasks report it.
    if (const auto started = situla::start_session(spank); !started) g_state->start_error = started.error();
    return {};
  });
}

SITULA_EXPORT int slurm_spank_local_user_init(spank_t spank, int, char**) {
  return guarded([&]() -> Result<void> {
    if (g_state == nullptr || !g_state->sound) return {};
    return situla::prepare_nodes(spank);
  });
}

/// In slurmstepd, when the step's cgroups are there and no task is. As the job's user, but nothing here asks who.
SITULA_EXPORT int slurm_spank_user_init(spank_t spank, int, char**) {
  return guarded([&]() -> Result<void> {
    if (g_state != nullptr && g_state->session && spank_remote(spank) == 1) g_state->session->step_is_prepared();
    return {};
  });
}

SITULA_EXPORT int slurm_spank_task_init_privileged(spank_t, int, char**) {
  return guarded([&]() -> Result<void> {
    if (g_state != nullptr && g_state->session) g_state->session->forget_control();
    return {};
  });
}

SITULA_EXPORT int slurm_spank_task_init(spank_t spank, int, char**) {
  bool said = false;
  const int status = guarded([&]() -> Result<void> {
    Result<void> joined = situla::start_task(spank);
    said = !joined && joined.error().message().empty();
    return joined;
  });
  // Another task of the node has said why, or srun. slurmstepd would say twice that the plugin failed, and do the same.
  if (said) _exit(1);
  return status;
}

SITULA_EXPORT int slurm_spank_task_exit(spank_t, int, char**) {
  return guarded([&]() -> Result<void> {
    if (g_state != nullptr && g_state->tasks_left > 0 && --g_state->tasks_left == 0) situla::end_session();
    return {};
  });
}

SITULA_EXPORT int slurm_spank_exit(spank_t, int, char**) {
  const int status = guarded([&]() -> Result<void> {
    situla::end_session();
    return {};
  });
  if (g_state != nullptr && g_state->monitor) g_state->monitor->finish(situla::kMonitorLimit);
  delete std::exchange(g_state, nullptr);
  return status;
}
