// prefetch: images to the nodes of a partition, a list or a job, before steps need them. A Slurm step for each image.
#include <algorithm>
#include <map>
#include <ostream>

#include "common/base/text.hpp"
#include "hooks/cli/commands.hpp"
#include "hooks/cli/slurm.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"

namespace situla::cli {
namespace {

struct PrefetchOptions {
  std::vector<std::string> images;
  std::string nodes, partition, resolve;
};

constexpr const char* kMark = "situla-prefetched ";
/// What each node says of itself; the plugin has set the variable.
constexpr const char* kReport = R"(echo "situla-prefetched $SLURMD_NODENAME $SITULA_PREFETCHED")";

/// Those of a partition on which a job of anybody's can start, now or as soon as another one ends. What sinfo calls
/// "idle" when it is asked for nodes of that state is another thing in each release, drained ones among them.
Result<std::vector<std::string>> nodes_of_partition(const Context& context, const std::string& partition) {
  TRY_ASSIGN(const std::vector<std::string> lines,
             ask_slurm(context, "sinfo", {"--noheader", "--Node", "--partition=" + partition, doctor::kSinfoFormat}));
  std::vector<std::string> nodes;
  std::map<std::string, std::vector<std::string>> left_out;  // by the reason
  for (const doctor::ClusterNode& node : doctor::parse_sinfo(join(lines, "\n"))) {
    const std::string obstacle = node.reserved ? "reserved" : node.obstacle;
    (obstacle.empty() ? nodes : left_out[obstacle]).push_back(node.name);
  }
  for (const auto& [obstacle, names] : left_out)
    context.log.warning(printable(doctor::fold_nodes(names)) + ": " + printable(obstacle) + ", left out");
  if (nodes.empty())
    return fail(Error(ErrorKind::not_found, (left_out.empty() ? "there is no partition with nodes called "
                                                              : "no node takes jobs now in the partition ") +
                                                printable(partition))
                    .with_code(ErrorCode::slurm)
                    .with_hint("`sinfo` shows the partitions and their nodes"));
  return nodes;
}

/// What an import takes, at the least. What sites give by default may be all of a node's memory, for which a job waits
/// until nobody else is there. Not where the caller says something, or Slurm is not told what the nodes have.
Result<std::vector<std::string>> memory_words(const Context& context, const std::vector<std::string>& nodes) {
  constexpr uint64_t kMebibytes = 512;
  for (const auto& [name, value] : context.invocation.environment.entries())
    if (name.starts_with("SLURM_MEM_PER_")) return std::vector<std::string>();
  TRY_ASSIGN(const std::vector<std::string> lines,
             ask_slurm(context, "sinfo", {"--noheader", "--Node", "--nodes=" + join(nodes, ","), "--format=%m"}));
  for (const std::string& line : lines)
    if (parse_unsigned(line).value_or(0) < kMebibytes) return std::vector<std::string>();
  return std::vector<std::string>{"--mem=" + std::to_string(kMebibytes) + "M"};
}

Result<std::vector<std::string>> wanted_nodes(const Context& context, const PrefetchOptions& options, bool in_job) {
  const std::string of_job = in_job ? context.invocation.environment.get_or("SLURM_JOB_NODELIST", "") : "";
  std::vector<std::string> nodes;
  if (!options.partition.empty() && in_job)
    return fail(Error(ErrorKind::usage, "prefetch: --partition inside of a job")
                    .with_code(ErrorCode::option)
                    .with_hint("inside of a job its own nodes get the images; leave it, or unset SLURM_JOB_ID"));
  if (!options.nodes.empty()) {
    TRY_ASSIGN(nodes, ask_slurm(context, "scontrol", {"show", "hostnames", options.nodes}));
  } else if (!options.partition.empty()) {
    TRY_ASSIGN(nodes, nodes_of_partition(context, options.partition));
  } else if (!of_job.empty()) {
    TRY_ASSIGN(nodes, ask_slurm(context, "scontrol", {"show", "hostnames", of_job}));
  } else {
    return fail(Error(ErrorKind::usage, "prefetch: --nodes LIST or --partition NAME is required outside of a job")
                    .with_code(ErrorCode::option));
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (nodes.empty())
    return fail(Error(ErrorKind::usage, "prefetch: the list of nodes is empty").with_code(ErrorCode::option));
  return nodes;
}

/// "node3" -> "sha256:... store"
using Reports = std::map<std::string, std::string, std::less<>>;

Result<Reports> fetch(const Context& context, const PrefetchOptions& options, const std::vector<std::string>& nodes,
                      const std::string& image, bool in_job) {
  std::vector<std::string> words = {"--nodes=" + std::to_string(nodes.size()),
                                    "--nodelist=" + join(nodes, ","),
                                    "--ntasks=" + std::to_string(nodes.size()),  // else the job's SLURM_NTASKS counts
                                    "--ntasks-per-node=1",
                                    "--cpus-per-task=1",
                                    "--kill-on-bad-exit=0",
                                    "--wait=0",  // a node that has the image is done long before the others
                                    "--job-name=situla-prefetch",
                                    "--container-image=" + image,
                                    "--container-prefetch"};
  words.emplace_back(in_job ? "--overlap" : "--oversubscribe");
  if (!in_job) {
    TRY_ASSIGN(const std::vector<std::string> memory, memory_words(context, nodes));
    words.insert(words.end(), memory.begin(), memory.end());
  }
  if (!options.partition.empty()) words.push_back("--partition=" + options.partition);
  if (!options.resolve.empty()) words.push_back("--container-resolve=" + options.resolve);
  words.insert(words.end(), {"sh", "-c", kReport});
  TRY_ASSIGN(const ProgramRun run, run_slurm(context, "srun", std::move(words)));
  Reports reports;
  for (const std::string_view line : split_nonempty(run.output, '\n')) {
    if (!line.starts_with(kMark)) continue;
    const auto parts = cut(line.substr(std::string_view(kMark).size()), ' ');
    // A node without the plugin runs the task as well, and knows of no image.
    if (parts && parts->second.starts_with("sha256:")) reports.emplace(parts->first, parts->second);
  }
  return reports;
}

std::string shown(const Reports& reports, const std::string& node) {
  const auto found = reports.find(node);
  if (found == reports.end()) return "failed";
  return found->second.ends_with(" store") ? "was there" : "imported";
}

Result<int> prefetch(const Context& context, const PrefetchOptions& options) {
  const bool in_job = context.invocation.environment.has("SLURM_JOB_ID");
  TRY_ASSIGN(const std::vector<std::string> nodes, wanted_nodes(context, options, in_job));
  size_t node_width = 4, image_width = 5;
  for (const std::string& node : nodes) node_width = std::max(node_width, node.size());
  for (const std::string& image : options.images) image_width = std::max(image_width, printable(image).size());
  context.streams.out << flush_left("NODE", node_width + 2) << flush_left("IMAGE", image_width + 2) << "RESULT\n";
  size_t missing = 0;
  for (const std::string& image : options.images) {
    TRY_ASSIGN(const Reports reports, fetch(context, options, nodes, image, in_job));
    for (const std::string& node : nodes)
      context.streams.out << flush_left(printable(node), node_width + 2)
                          << flush_left(printable(image), image_width + 2) << shown(reports, node) << '\n';
    missing += nodes.size() - std::min(nodes.size(), reports.size());
  }
  if (missing == 0) return 0;
  return fail(Error(ErrorKind::failure, std::to_string(missing) + " of " +
                                            std::to_string(nodes.size() * options.images.size()) +
                                            " did not arrive; srun has said why")
                  .with_code(ErrorCode::failed)
                  .with_hint("what did arrive stays: only the rest is fetched the next time"));
}

}  // namespace

void add_prefetch(Program& program, Actions& actions) {
  const auto [command, options] = add_command(program, actions, "prefetch",
                                              "Fetch images to nodes before jobs need them, by a Slurm job", prefetch);
  command.option("IMAGE", options.images, "Images of registries, as for --container-image").value("").required();
  command.option("-w,--nodes", options.nodes, "Nodes, as Slurm writes them (default: those of this job)").value("LIST");
  command.option("-p,--partition", options.partition, "All nodes of a partition that take jobs").value("NAME");
  command.option("--resolve", options.resolve, "When to ask the registry what a tag means: as --container-resolve")
      .value("job|always|SECONDS");
}

}  // namespace situla::cli
