#include <algorithm>
#include <array>
#include <map>

#include "common/base/text.hpp"
#include "common/spec/json.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"

namespace situla::doctor {
namespace {

constexpr size_t kWidestNodes = 36;  ///< a longer list of nodes has a line of its own

/// Facts of one node alone, which the next node cannot have: names of its devices, free bytes, what follows from
/// memory.
constexpr std::array<std::string_view, 6> kOwn = {"uuid", "busId", "migDevices", "free", "limits", "offset"};

constexpr const char* kBetween = "cluster";  ///< section of what compare_nodes() finds

/// What `found` says without them.
std::string comparable(const Check& check) {
  std::string text = check.found;
  for (const auto& [name, value] : check.facts) {
    if (value.empty() || std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end()) continue;
    if (const size_t at = text.find(value); at != std::string::npos) text.replace(at, value.size(), "...");
  }
  return text;
}

/// Checks by section and name; the second of the same name in a section is another one.
struct Key {
  std::string section, name;
  size_t occurrence = 0;
  friend bool operator==(const Key&, const Key&) = default;
};

std::vector<std::pair<Key, const Check*>> checks_of(const Report& report) {
  std::vector<std::pair<Key, const Check*>> checks;
  for (const Section& section : report.sections)
    for (const Check& check : section.lines) {
      Key key{section.name, check.name};
      for (const auto& [other, ignored] : checks)
        if (other.section == key.section && other.name == key.name) key.occurrence = other.occurrence + 1;
      checks.emplace_back(std::move(key), &check);
    }
  return checks;
}

/// Nodes that say the same of one check.
struct Agreement {
  State state = State::info;
  std::string comparable;
  const Check* check = nullptr;  ///< of the first of them; null: these nodes have no such line
  std::vector<std::string> nodes;
};

struct Row {
  Key key;
  std::vector<Agreement> agreements;

  void add(const std::string& node, const Check* check) {
    const State state = check == nullptr ? State::info : check->state;
    const std::string text = check == nullptr ? "" : comparable(*check);
    for (Agreement& known : agreements)
      if (known.state == state && known.comparable == text && (known.check == nullptr) == (check == nullptr)) {
        known.nodes.push_back(node);
        return;
      }
    agreements.push_back({state, text, check, {node}});
  }
  /// Something is to be done, or the nodes differ.
  [[nodiscard]] bool matters() const {
    return agreements.size() > 1 || agreements.front().state == State::warn || agreements.front().state == State::fail;
  }
};

std::vector<Row> rows_of(const std::vector<NodeAnswer>& nodes) {
  std::vector<Row> rows;
  for (const NodeAnswer& node : nodes) {
    if (node.kind != NodeAnswer::Kind::answered) continue;
    auto after = rows.begin();
    for (const auto& [key, check] : checks_of(node.report)) {
      auto row = std::find_if(rows.begin(), rows.end(), [&, k = &key](const Row& other) { return other.key == *k; });
      if (row == rows.end()) row = rows.insert(after, {key, {}});
      after = row + 1;
    }
  }
  for (const NodeAnswer& node : nodes) {
    if (node.kind != NodeAnswer::Kind::answered) continue;
    const auto checks = checks_of(node.report);
    for (Row& row : rows) {
      const auto found =
          std::find_if(checks.begin(), checks.end(), [&](const auto& item) { return item.first == row.key; });
      row.add(node.node, found == checks.end() ? nullptr : found->second);
    }
  }
  return rows;
}

std::string number(size_t count) {
  return flush_right(std::to_string(count), 6);
}

/// One line of the summary: nodes that agree in everything.
struct Group {
  std::vector<std::string> nodes;
  NodeAnswer::Kind kind = NodeAnswer::Kind::answered;
  std::string reason;
  const Report* report = nullptr;
};

std::vector<Group> groups_of(const std::vector<NodeAnswer>& nodes, const std::vector<Row>& rows) {
  // Two nodes agree when every row puts them together: the numbers of their agreements are the same.
  std::map<std::string, std::string> signatures;
  for (const Row& row : rows)
    for (size_t i = 0; i < row.agreements.size(); ++i)
      for (const std::string& node : row.agreements[i].nodes) signatures[node] += std::to_string(i) + " ";
  std::vector<std::pair<std::string, Group>> groups;
  for (const NodeAnswer& node : nodes) {
    const std::string key = std::to_string(static_cast<int>(node.kind)) + node.reason + "\n" + signatures[node.node];
    auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (known == groups.end()) known = groups.insert(groups.end(), {key, {{}, node.kind, node.reason, &node.report}});
    known->second.nodes.push_back(node.node);
  }
  std::vector<Group> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

std::string tier_text(const Report& report) {
  return report.tier == "none" ? "nothing" : report.tier;
}

std::string summary_table(const std::vector<Group>& groups, Colours colours) {
  size_t width = std::string_view("NODES").size();
  for (const Group& group : groups) width = std::max(width, std::min(fold_nodes(group.nodes).size(), kWidestNodes));
  std::string text = flush_left("NODES", width) + "  RESULT       OK  WARN  FAIL  IMAGES BY\n";
  for (const Group& group : groups) {
    const std::string nodes = fold_nodes(group.nodes);
    text += nodes.size() > width ? nodes + "\n" + std::string(width, ' ') : flush_left(nodes, width);
    if (group.kind == NodeAnswer::Kind::answered) {
      const State worst = group.report->worst();
      text += "  " + paint(worst, to_string(worst), 9, colours) +
              number(group.report->count(State::ok) + group.report->count(State::info)) +
              number(group.report->count(State::warn)) + number(group.report->count(State::fail)) + "  " +
              printable(tier_text(*group.report)) + "\n";
    } else {
      const bool silent = group.kind == NodeAnswer::Kind::silent;
      text += "  " + paint(silent ? State::fail : State::info, silent ? "no answer" : "not asked", 9, colours) + "  " +
              group.reason + "\n";
    }
  }
  const bool incomplete = std::any_of(groups.begin(), groups.end(), [](const Group& group) {
    return group.kind == NodeAnswer::Kind::answered && !group.report->complete;
  });
  if (incomplete) text += "IMAGES BY: for what you start yourself; only root's doctor can tell for Slurm jobs\n";
  return text;
}

std::string row_text(const Row& row, size_t name_width, size_t node_width, Colours colours) {
  std::string text;
  const std::string before(name_width + node_width + 4, ' ');
  for (const Agreement& agreement : row.agreements) {
    const std::string nodes = fold_nodes(agreement.nodes);
    text += flush_left(text.empty() ? printable(row.key.section + ": " + row.key.name) : "", name_width) + "  ";
    text += nodes.size() > node_width ? nodes + "\n" + before : flush_left(nodes, node_width) + "  ";
    if (agreement.check == nullptr) {
      text += "-       not on these nodes\n";
      continue;
    }
    text += paint(agreement.state, to_string(agreement.state), 8, colours) +
            printable(agreement.nodes.size() == 1 ? agreement.check->found : agreement.comparable) + "\n";
    if (!agreement.check->fix.empty())
      text += before + std::string(8, ' ') + "fix: " + printable(agreement.check->fix) + "\n";
  }
  return text;
}

/// agreed: comparing the nodes brought nothing else to fix.
std::string check_table(const std::vector<Row>& rows, bool agreed, Colours colours) {
  size_t name_width = std::string_view("CHECK").size(), node_width = std::string_view("NODES").size();
  for (const Row& row : rows) {
    if (!row.matters()) continue;
    name_width = std::max(name_width, row.key.section.size() + 2 + row.key.name.size());
    for (const Agreement& agreement : row.agreements)
      node_width = std::max(node_width, std::min(fold_nodes(agreement.nodes).size(), kWidestNodes));
  }
  std::string text;
  for (const Row& row : rows)
    if (row.matters()) text += row_text(row, name_width, node_width, colours);
  if (text.empty()) return agreed ? "\nall nodes that answered agree, and there is nothing to fix\n" : "";
  return "\n" + flush_left("CHECK", name_width) + "  " + flush_left("NODES", node_width) + "  STATUS  FOUND\n" + text;
}

std::vector<Check> between_nodes(const ClusterReport& report) {
  std::vector<Check> checks = compare_nodes(report.nodes);
  for (Check& check : checks)
    if (!report.for_root) check.fix = administrators_fix(check.fix);
  return checks;
}

}  // namespace

bool ClusterReport::failed() const {
  const std::vector<Check> compared = compare_nodes(nodes);
  if (std::any_of(compared.begin(), compared.end(), [](const Check& check) { return check.state == State::fail; }))
    return true;
  return std::any_of(nodes.begin(), nodes.end(), [](const NodeAnswer& node) {
    return node.kind == NodeAnswer::Kind::silent || (node.kind == NodeAnswer::Kind::answered && node.report.failed());
  });
}

std::string ClusterReport::text(Colours colours) const {
  const std::vector<Row> rows = rows_of(nodes);
  const std::vector<Check> compared = between_nodes(*this);
  std::string text = summary_table(groups_of(nodes, rows), colours);
  if (!compared.empty()) text += "\n" + to_text(Section{kBetween, "between nodes", compared}, colours);
  const bool agreed =
      std::all_of(compared.begin(), compared.end(), [](const Check& check) { return check.fix.empty(); });
  return rows.empty() ? text : text + check_table(rows, agreed, colours);
}

std::string ClusterReport::json() const {
  Json list = Json::list();
  std::map<std::string, size_t> counts;
  for (const NodeAnswer& node : nodes) {
    const bool answered = node.kind == NodeAnswer::Kind::answered;
    const std::string status = answered                                ? std::string(to_string(node.report.worst()))
                               : node.kind == NodeAnswer::Kind::silent ? "noAnswer"
                                                                       : "notAsked";
    ++counts[status];
    list.add(Json::object({{"node", node.node},
                           {"status", status},
                           {"reason", node.reason},
                           {"report", answered ? parse_json(node.json).value_or(Json()) : Json()}}));
  }
  Json summary = Json::object({{"nodes", nodes.size()}});
  for (const char* status : {"ok", "warn", "fail", "noAnswer", "notAsked"}) summary.add(status, counts[status]);
  Json checks = Json::list();
  for (const Check& check : between_nodes(*this)) checks.add(to_json(kBetween, check));
  return to_text(Json::object({{"schema", kSchema},
                               {"summary", std::move(summary)},
                               {"checks", std::move(checks)},
                               {"nodes", std::move(list)}}));
}

}  // namespace situla::doctor
