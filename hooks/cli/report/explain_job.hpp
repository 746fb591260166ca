// explain JOB: what happened to a job's steps on this node, from the records that the broker keeps.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "hooks/cli/tool.hpp"

namespace situla::cli {

struct ExplainJob {
  bool json = false;                 ///< the records, one in each line
  std::string svg;                   ///< the file for a picture; "-": standard output; empty: none
  std::vector<std::string> records;  ///< files with more of them, of other nodes; "-": standard input
};

/// job: "123", "123.0", "123.batch", "123.interactive", "123.prolog". ErrorKind::not_found when nothing is known of it
/// here; the hint is the line that asks its nodes, if Slurm knows them.
Result<int> explain_job(const Context& context, const std::string& job, const ExplainJob& options);

}  // namespace situla::cli
