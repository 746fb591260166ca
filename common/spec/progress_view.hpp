// What does a node tell of an import that lasts, of which others of the step may tell, too?
#pragma once

#include <cstdint>
#include <string>
#include <tuple>

namespace situla {

struct ProgressView {
  uint32_t columns = 0, rows = 0;  ///< of srun's terminal, on which it draws; 0: there is none, it writes lines
  std::string label{};             ///< what stands before a phase: "node1, first of 4: "; empty: there is one node
  bool silent = false;             ///< another node tells

  static auto fields(auto& it) { return std::tie(it.columns, it.rows, it.label, it.silent); }
  friend bool operator==(const ProgressView&, const ProgressView&) = default;
};

}  // namespace situla
