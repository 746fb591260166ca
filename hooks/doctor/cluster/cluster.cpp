#include "hooks/doctor/cluster/cluster.hpp"

#include <algorithm>
#include <array>

#include "common/base/text.hpp"
#include "hooks/doctor/ask.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"

namespace situla::doctor {
namespace {

constexpr size_t kAtOnce = 64;  ///< as many jobs; slurmctld starts them in a second

/// States that sinfo gives nodes on which a job can start, now or as soon as another ends.
constexpr std::array<std::string_view, 6> kUsable = {"idle", "mixed", "allocated", "completing", "planned", "reserved"};

/// "idle*" is idle and does not respond; see NODE STATE CODES in sinfo(1).
std::string obstacle_of(std::string_view state) {
  const size_t end = state.find_first_of("*~#!%$@^-+");
  const std::string_view word = state.substr(0, end);
  const char mark = end == std::string_view::npos ? '-' : state[end];
  if (mark == '*') return std::string(word) + ", does not respond";
  if (mark == '~' || mark == '%' || mark == '!') return std::string(word) + ", powered down";
  if (mark == '#') return std::string(word) + ", powering up";
  if (mark == '$') return std::string(word) + ", in a maintenance reservation";
  return std::find(kUsable.begin(), kUsable.end(), word) == kUsable.end() ? std::string(word) : "";
}

Result<std::string> client_program(const std::string& name, const Environment& environment) {
  if (auto program = find_program(name, environment)) return *program;
  return fail(Error(ErrorKind::not_found, "ask the cluster: there is no " + name + " in PATH")
                  .with_code(ErrorCode::slurm)
                  .with_hint("--cluster needs Slurm's commands: run it where jobs are submitted"));
}

/// What Slurm's commands say of what went wrong, without their names in front.
std::string reason_in(const std::string& errors) {
  std::vector<std::string> lines;
  for (std::string_view line : split_nonempty(errors, '\n')) {
    line = trim(line);
    for (const std::string_view prefix : {"srun: ", "sinfo: ", "slurmstepd: ", "error: "})
      if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
    // The nodes' own checks make its exit status.
    if (line.empty() || line.starts_with("job ") || line.find("Exited with exit code 1") != std::string_view::npos)
      continue;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.emplace_back(line);
  }
  if (lines.size() > 3) lines.erase(lines.begin(), lines.end() - 3);
  return printable(join(lines, "; "));
}

struct Slurm {
  std::string srun, sinfo;
  std::vector<std::string> environment;
  std::string job_nodes;  ///< of the job that this runs in; empty: in none
};

Result<Slurm> find_slurm(const ClusterRequest& request, const Environment& environment) {
  Slurm slurm;
  TRY_ASSIGN(slurm.srun, client_program("srun", environment));
  TRY_ASSIGN(slurm.sinfo, client_program("sinfo", environment));
  slurm.environment = for_plain_step(environment).strings();
  if (environment.has("SLURM_JOB_ID")) slurm.job_nodes = environment.get_or("SLURM_JOB_NODELIST", "");
  if (!slurm.job_nodes.empty() && !request.partition.empty())
    return fail(Error(ErrorKind::usage, "ask the cluster: --partition inside of a job")
                    .with_code(ErrorCode::option)
                    .with_hint("inside of a job its own nodes are asked; leave it, or unset SLURM_JOB_ID"));
  return slurm;
}

Result<std::vector<ClusterNode>> list_nodes(const ClusterRequest& request, const Slurm& slurm) {
  Question question{slurm.sinfo, {"-h", "-N", kSinfoFormat}};
  const std::string& wanted = request.nodes.empty() ? slurm.job_nodes : request.nodes;
  if (!request.partition.empty()) question.arguments.push_back("--partition=" + request.partition);
  if (!wanted.empty()) question.arguments.push_back("--nodes=" + wanted);
  TRY_ASSIGN(const auto answers, ask_all({question}, slurm.environment, {std::chrono::seconds(20), 1}));
  const Answer& answer = answers.front();
  if (answer.late || !answer.broken.empty() || !answer.status.success())
    return fail(
        Error(ErrorKind::failure, "ask the cluster: sinfo: " + (answer.late ? std::string("no answer in 20 s")
                                                                : !answer.broken.empty() ? answer.broken
                                                                                         : reason_in(answer.errors)))
            .with_code(ErrorCode::slurm)
            .with_hint("does `sinfo -N` work here?"));
  std::vector<ClusterNode> nodes = parse_sinfo(answer.output);
  if (nodes.empty())
    return fail(Error(ErrorKind::not_found,
                      "ask the cluster: there is no node" + (wanted.empty() ? "" : " named " + printable(wanted)) +
                          (request.partition.empty() ? "" : " in the partition " + printable(request.partition)))
                    .with_code(ErrorCode::slurm)
                    .with_hint("`sinfo -N` shows nodes and partitions"));
  return nodes;
}

Question question_for(const ClusterNode& node, const ClusterRequest& request, const Slurm& slurm) {
  Question question{slurm.srun,
                    {"--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--nodelist=" + node.name, "--chdir=/",
                     "--mpi=none", "--input=none", "--job-name=situla-doctor", "--export=ALL"}};
  const auto add = [&](const std::string& word) { question.arguments.push_back(word); };
  if (slurm.job_nodes.empty()) {
    // Half of the time to start, and half for what is asked.
    const auto seconds = std::max<int64_t>(request.limit.count() / 2, 1);
    // Not more than there is on the smallest node, and not all of a node's memory, which some sites give by default.
    // Where Slurm is not told what a node has, it is 1 MiB, and such a job would be refused.
    constexpr uint64_t kMebibytes = 64;
    if (node.memory_mib >= kMebibytes) add("--mem=" + std::to_string(kMebibytes) + "M");
    add("--oversubscribe");
    add("--immediate=" + std::to_string(seconds));
    add("--time=" + std::to_string(request.limit.count() / 60 + 1));
    add("--partition=" + node.partition);
    if (!request.account.empty()) add("--account=" + request.account);
  } else {
    add("--overlap");
  }
  add(request.program);
  add("doctor");
  add("--json");
  if (!request.registry.empty()) {
    add("--registry=" + request.registry);
    add("--all");
  }
  return question;
}

bool is_busy(const std::string& reason) {
  return reason.find("nodes are busy") != std::string::npos ||
         reason.find("Immediate execution impossible") != std::string::npos;
}

void take_answer(NodeAnswer& node, const Answer& answer, const ClusterRequest& request) {
  node.asked = answer.began;
  node.answered = answer.ended;
  // Slurm may say something before.
  const size_t begin = answer.output.find('{');
  auto report = parse_report(begin == std::string::npos ? "" : answer.output.substr(begin));
  if (report) {
    node.kind = NodeAnswer::Kind::answered;
    node.report = std::move(*report);
    node.json = answer.output.substr(begin);
    return;
  }
  node.kind = NodeAnswer::Kind::silent;
  node.reason = !answer.broken.empty() ? answer.broken : reason_in(answer.errors);
  if (is_busy(node.reason)) {
    node.kind = NodeAnswer::Kind::not_asked;
    node.reason = "busy: other jobs have it";
  } else if (answer.late) {
    node.reason = "no answer in " + std::to_string(request.limit.count()) + " s" +
                  (node.reason.empty() ? "" : ": " + node.reason);
  } else if (node.reason.empty()) {
    node.reason = "srun " + answer.status.text() +
                  (answer.output.empty() ? "" : "; what came is no report: " + report.error().message());
  }
}

}  // namespace

std::vector<ClusterNode> parse_sinfo(std::string_view text) {
  std::vector<ClusterNode> nodes;
  for (const std::string_view line : split_nonempty(text, '\n')) {
    const std::vector<std::string_view> fields = split(trim(line), '|');
    if (fields.size() < 4) continue;
    const bool is_default = fields[1].ends_with('*');
    const std::string partition(fields[1].substr(0, fields[1].size() - (is_default ? 1 : 0)));
    const std::string state = to_lower(fields[3]);
    ClusterNode node{std::string(fields[0]), partition, obstacle_of(state), state.starts_with("reserved")};
    if (fields.size() > 4) node.memory_mib = parse_unsigned(fields[4]).value_or(0);
    if (node.obstacle.empty() && fields[2] != "up")
      node.obstacle = "partition " + partition + " is " + std::string(fields[2]);
    const auto known =
        std::find_if(nodes.begin(), nodes.end(), [&](const ClusterNode& other) { return other.name == node.name; });
    if (known == nodes.end())
      nodes.push_back(std::move(node));
    else if (node.obstacle.empty() && (is_default || !known->obstacle.empty()))
      *known = std::move(node);
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const ClusterNode& one, const ClusterNode& other) { return node_less(one.name, other.name); });
  return nodes;
}

Result<std::vector<NodeAnswer>> ask_cluster(const ClusterRequest& request, const Environment& environment) {
  TRY_ASSIGN(const Slurm slurm, find_slurm(request, environment));
  TRY_ASSIGN(const std::vector<ClusterNode> nodes, list_nodes(request, slurm));
  std::vector<NodeAnswer> answers(nodes.size());
  std::vector<Question> questions;
  std::vector<size_t> asked;
  for (size_t i = 0; i < nodes.size(); ++i) {
    answers[i].node = nodes[i].name;
    answers[i].reason = nodes[i].obstacle;
    // A job has its nodes, whatever their state is called.
    if (!nodes[i].obstacle.empty() && slurm.job_nodes.empty()) continue;
    questions.push_back(question_for(nodes[i], request, slurm));
    asked.push_back(i);
  }
  TRY_ASSIGN(const std::vector<Answer> texts, ask_all(questions, slurm.environment, {request.limit, kAtOnce}));
  for (size_t i = 0; i < texts.size(); ++i) take_answer(answers[asked[i]], texts[i], request);
  return answers;
}

}  // namespace situla::doctor
