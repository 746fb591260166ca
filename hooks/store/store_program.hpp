// The store program: what is its command line, and what does it say?
#pragma once

#include <string>
#include <vector>

namespace situla {

/// `situla-store --store PATH --uid UID --job JOB.STEP [--variant V]`, with the descriptors of store_fd
/// (common/protocol/contract.hpp), or `situla-store --store PATH --sweep`.
int run_store(const std::vector<std::string>& words);

}  // namespace situla
