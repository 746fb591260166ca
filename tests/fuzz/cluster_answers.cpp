#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "common/base/text.hpp"
#include "hooks/doctor/cluster/cluster.hpp"
#include "hooks/doctor/cluster/nodeset.hpp"
#include "hooks/inject/hooks.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// "gpu1,node[01-02,04]" in full.
std::set<std::string> unfold(std::string_view text) {
  std::set<std::string> nodes;
  while (!text.empty()) {
    const size_t open = text.find('['), comma = text.find(',');
    if (open > comma || open == std::string_view::npos) {
      nodes.emplace(text.substr(0, comma));
      text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
      continue;
    }
    const size_t close = text.find(']');
    const size_t end = std::min(text.find(',', close), text.size());
    const std::string prefix(text.substr(0, open)), suffix(text.substr(close + 1, end - close - 1));
    for (const std::string_view range : split(text.substr(open + 1, close - open - 1), ',')) {
      const auto ends = cut(range, '-').value_or(std::pair(range, range));
      const uint64_t last = parse_unsigned(ends.second).value();
      for (uint64_t number = parse_unsigned(ends.first).value();; ++number) {
        std::string digits = std::to_string(number);
        if (ends.first.front() == '0' && digits.size() < ends.first.size())
          digits.insert(0, ends.first.size() - digits.size(), '0');
        nodes.insert(prefix + digits + suffix);
        if (number == last) break;
      }
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return nodes;
}

void check_folding(std::string_view bytes) {
  (void)first_host(bytes);
  std::vector<std::string> nodes;
  for (const std::string_view line : split_nonempty(bytes, '\n')) nodes.emplace_back(line);
  const std::string folded = doctor::fold_nodes(nodes);
  if (doctor::fold_nodes({nodes.rbegin(), nodes.rend()}) != folded) std::abort();
  // No name of a node has these characters.
  if (bytes.find_first_of("[],") != std::string_view::npos) return;
  const std::set<std::string> names(nodes.begin(), nodes.end());
  if (unfold(folded) != names) std::abort();
  if (!names.empty() && !names.contains(first_host(folded))) std::abort();
}

}  // namespace

/// Lists of hosts, and what sinfo and the nodes of a cluster answer to the doctor.
void situla::fuzz(std::string_view bytes) {
  check_folding(bytes);
  const auto nodes = doctor::parse_sinfo(bytes);
  for (size_t i = 1; i < nodes.size(); ++i)
    if (nodes[i].name == nodes[i - 1].name || doctor::node_less(nodes[i].name, nodes[i - 1].name)) std::abort();
  const std::string json(bytes);
  const auto report = doctor::parse_report(json);
  if (!report) return;
  const std::string written = report->json();
  const auto again = doctor::parse_report(written);
  if (!again || again->json() != written) std::abort();
  if (report->brief().find('\033') != std::string::npos || report->text().find('\033') != std::string::npos)
    std::abort();
  doctor::ClusterReport cluster;
  for (const char* name : {"node1", "node2"})
    cluster.nodes.push_back(
        {.node = name, .kind = doctor::NodeAnswer::Kind::answered, .report = *report, .json = json});
  if (cluster.text().find('\033') != std::string::npos) std::abort();
  (void)cluster.json();
}
