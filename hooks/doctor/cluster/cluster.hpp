// What do all nodes of the cluster say? `situla doctor --cluster`: asks each by srun and puts the answers side by side.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/environment.hpp"
#include "hooks/doctor/report.hpp"

namespace situla::doctor {

struct ClusterRequest {
  std::string partition;  ///< -p; empty: for each node the default partition, or the first it is in
  std::string nodes;      ///< -w; empty: all
  std::string account;    ///< -A
  std::string program;    ///< situla, as the nodes find it
  std::string registry;   ///< --registry, asked by each node; empty: none
  std::chrono::seconds limit{30};
};

/// One node of the answer.
struct NodeAnswer {
  enum class Kind {
    answered,
    silent,    ///< asked in vain: that is an error
    not_asked  ///< down, drained, or busy: nothing is known
  };
  std::string node;
  Kind kind = Kind::not_asked;
  std::string reason;                                         ///< of a node that did not answer
  Report report;                                              ///< of one that did
  std::string json;                                           ///< the same, as it came
  std::chrono::system_clock::time_point asked{}, answered{};  ///< by the clock of who asks; its time is between the two
};

/// A node as sinfo names it.
struct ClusterNode {
  std::string name, partition;
  std::string obstacle;     ///< why it is not asked: "down", "drained"; empty: usable
  bool reserved = false;    ///< jobs start here, but of those for whom it is reserved
  uint64_t memory_mib = 0;  ///< RealMemory in slurm.conf; 0: not known
};

/// Of sinfo, for lines "NODE|PARTITION|AVAILABILITY|STATE|MEBIBYTES".
constexpr const char* kSinfoFormat = "--format=%N|%P|%a|%T|%m";

/// Such lines, each node once.
std::vector<ClusterNode> parse_sinfo(std::string_view text);

/// Inside a job its nodes are asked, as steps of it, otherwise a job of one task is started on each.
Result<std::vector<NodeAnswer>> ask_cluster(const ClusterRequest& request, const Environment& environment);

/// What no node can find by itself: whether their ways of keeping the store, the stores, the service user's numbers,
/// the clocks and the versions are the same. None where nothing is known.
std::vector<Check> compare_nodes(const std::vector<NodeAnswer>& nodes);

struct ClusterReport {
  std::vector<NodeAnswer> nodes;
  bool for_root = true;  ///< else fixes between nodes are to be asked for, as each node says of its own

  /// Whether a check fails on a node or between nodes, or a node was asked in vain.
  [[nodiscard]] bool failed() const;
  /// Nodes that agree in one line, then compare_nodes(), then every check that is not in order everywhere or differs
  /// between nodes.
  [[nodiscard]] std::string text(Colours colours = Colours::none) const;
  [[nodiscard]] std::string json() const;  ///< all reports; situla-doctor(1) has the schema
};

}  // namespace situla::doctor
