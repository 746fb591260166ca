// What has to be undone when this scope ends, whichever way it ends?
#pragma once

#include <utility>

namespace situla {

/// Runs the function at the end of the scope unless dismissed. The function must not throw.
template <typename F>
class [[nodiscard]] ScopeExit {
 public:
  explicit ScopeExit(F function) : function_(std::move(function)) {}
  ScopeExit(const ScopeExit&) = delete;
  ScopeExit& operator=(const ScopeExit&) = delete;
  ~ScopeExit() {
    if (armed_) function_();
  }
  void dismiss() { armed_ = false; }

 private:
  F function_;
  bool armed_ = true;
};

}  // namespace situla
