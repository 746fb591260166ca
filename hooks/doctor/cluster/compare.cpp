#include <algorithm>
#include <ctime>
#include <functional>

#include "common/base/text.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"

namespace situla::doctor {
namespace {

constexpr double kClocksAgree = 5;  ///< seconds

std::string fact(const NodeAnswer& node, std::string_view check, std::string_view name) {
  const Check* found = node.report.find(check);
  if (found == nullptr) return "";
  const auto fact =
      std::find_if(found->facts.begin(), found->facts.end(), [&](const auto& each) { return each.first == name; });
  return fact == found->facts.end() ? "" : fact->second;
}

/// Nodes of which something is the same.
struct Alike {
  std::string value;
  std::vector<std::string> nodes;
};

/// The largest group first. A node without the value is in none.
std::vector<Alike> grouped(const std::vector<NodeAnswer>& nodes,
                           const std::function<std::string(const NodeAnswer&)>& value_of) {
  std::vector<Alike> groups;
  for (const NodeAnswer& node : nodes) {
    if (node.kind != NodeAnswer::Kind::answered) continue;
    const std::string value = value_of(node);
    if (value.empty()) continue;
    auto known = std::find_if(groups.begin(), groups.end(), [&](const Alike& group) { return group.value == value; });
    if (known == groups.end()) known = groups.insert(groups.end(), {value, {}});
    known->nodes.push_back(node.node);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Alike& one, const Alike& other) { return one.nodes.size() > other.nodes.size(); });
  return groups;
}

/// "uid 998 on node[1-3], uid 997 on node4"
std::string listed(const std::vector<Alike>& groups) {
  std::vector<std::string> parts;
  for (const Alike& group : groups) parts.push_back(group.value + " on " + fold_nodes(group.nodes));
  return join(parts, ", ");
}

std::string mode_of(const NodeAnswer& node) {
  return fact(node, "store-mode", "mode");
}

void compare_modes(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto groups = grouped(nodes, [](const NodeAnswer& node) {
    const std::string mode = mode_of(node), path = fact(node, "store-mode", "path");
    return path.empty() ? mode : mode + " (" + path + ")";
  });
  if (groups.empty()) return;
  Check check{"store-mode", State::ok, listed(groups), ""};
  if (groups.size() > 1) {
    check.state = State::warn;
    check.fix = "one situla.toml for all nodes (store_path, distribute, service_user), and the same mount at that path";
  }
  checks.push_back(std::move(check));
}

/// Nodes whose store_path is on a file system of several nodes, but not on the one of the others.
void compare_stores(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto paths = grouped(nodes, [](const NodeAnswer& node) {
    return mode_of(node) == "shared" ? fact(node, "store-mode", "path") : std::string();
  });
  for (const Alike& path : paths) {
    const auto stores = grouped(nodes, [&](const NodeAnswer& node) {
      return fact(node, "store-mode", "path") == path.value ? fact(node, "store-access", "id") : std::string();
    });
    for (size_t i = 1; i < stores.size(); ++i) {
      const std::string most = fold_nodes(stores.front().nodes), others = fold_nodes(stores[i].nodes);
      checks.push_back({"store", State::warn, others + ": " + path.value + " is another store than that of " + most,
                        "mount there what " + most + " have: findmnt --target " + shell_quote(path.value)});
    }
  }
}

void compare_service_users(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto groups = grouped(nodes, [](const NodeAnswer& node) {
    const std::string mode = mode_of(node), uid = fact(node, "service-user", "uid");
    return uid.empty() || (mode != "shared" && mode != "sbcast") ? std::string() : "uid " + uid;
  });
  if (groups.size() < 2) return;
  checks.push_back({"service-user", State::fail, listed(groups) + ": what one node writes is not the others'",
                    "give service_user one number on all nodes: usermod --uid, and chown what it owns"});
}

/// By the table of situla.toml. Nodes without one give these users no ids, or those of the two files.
void compare_id_tables(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto groups = grouped(nodes, [](const NodeAnswer& node) { return fact(node, "id-ranges", "table"); });
  std::vector<std::string> tables;
  for (const Alike& group : groups)
    if (!group.value.empty()) tables.push_back(group.value + ": " + fold_nodes(group.nodes));
  if (tables.size() < 2) return;
  checks.push_back({"id-ranges", State::warn,
                    "the tables of id_ranges differ: " + join(tables, " against ") +
                        "; a user may be root over what others' containers write to a shared directory",
                    "the same id_ranges in situla.toml on all nodes"});
}

/// Where one node gives a user the ids that another one gives somebody else, or gives nobody.
void compare_id_ranges(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto groups = grouped(nodes, [](const NodeAnswer& node) { return fact(node, "id-ranges", "files"); });
  if (groups.size() < 2) return;
  std::vector<std::string> alike;
  for (const Alike& group : groups)
    alike.push_back(fold_nodes(group.nodes) + (group.value == kNoRangeLines ? " (no ranges)" : ""));
  const bool only_missing =
      groups.size() == 2 && (groups[0].value == kNoRangeLines || groups[1].value == kNoRangeLines);
  checks.push_back(
      {"id-ranges", State::warn,
       "ranges by /etc/subuid and /etc/subgid differ: " + join(alike, " against ") +
           (only_missing ? "; containers with a range cannot be used where it is missing"
                         : "; a user may be root over what others' containers write to a shared directory"),
       "the same two files on all nodes, and newuidmap and newgidmap, or id_ranges = \"off\" in "
       "situla.toml"});
}

/// How many seconds a node's clock is ahead of that of who asked: something between the two.
struct Offset {
  const NodeAnswer* node;
  double least, most;
};

double seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::vector<Offset> offsets_of(const std::vector<NodeAnswer>& nodes) {
  std::vector<Offset> offsets;
  for (const NodeAnswer& node : nodes) {
    tm parts{};
    const std::string& text = node.report.time;
    if (node.kind != NodeAnswer::Kind::answered || node.answered.time_since_epoch().count() == 0) continue;
    if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts) == nullptr) continue;
    const auto time = static_cast<double>(timegm(&parts));
    offsets.push_back({&node, time - seconds_of(node.answered), time + 1 - seconds_of(node.asked)});
  }
  return offsets;
}

void compare_clocks(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  std::vector<Offset> offsets = offsets_of(nodes);
  if (offsets.size() < 2) return;
  std::vector<Offset> sorted = offsets;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Offset& one, const Offset& other) {
    return one.least + one.most < other.least + other.most;
  });
  const Offset middle = sorted[(sorted.size() - 1) / 2];
  std::vector<std::string> parts;
  for (const Offset& offset : offsets) {
    const double ahead = offset.least - middle.most, behind = middle.least - offset.most;
    if (std::max(ahead, behind) <= kClocksAgree) continue;
    parts.push_back(offset.node->node + " is at least " +
                    std::to_string(static_cast<int64_t>(std::max(ahead, behind))) +
                    (ahead > behind ? " s ahead" : " s behind"));
  }
  if (parts.empty()) return;
  checks.push_back({"clocks", State::warn, "by the clock of " + middle.node->node + ": " + join(parts, ", "),
                    "synchronise all nodes with one time source: `chronyc tracking` or `timedatectl` says what each "
                    "follows"});
}

void compare_versions(const std::vector<NodeAnswer>& nodes, std::vector<Check>& checks) {
  const auto groups = grouped(nodes, [](const NodeAnswer& node) { return node.report.version; });
  if (groups.size() < 2) return;
  checks.push_back({"versions", State::warn, "situla " + listed(groups), "install one release on all nodes"});
}

}  // namespace

std::vector<Check> compare_nodes(const std::vector<NodeAnswer>& nodes) {
  std::vector<Check> checks;
  compare_modes(nodes, checks);
  compare_stores(nodes, checks);
  compare_service_users(nodes, checks);
  compare_id_ranges(nodes, checks);
  compare_id_tables(nodes, checks);
  compare_clocks(nodes, checks);
  compare_versions(nodes, checks);
  return checks;
}

}  // namespace situla::doctor
