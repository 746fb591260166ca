// How often is a registry asked what a tag means? DESIGN.md section 8.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"

namespace situla {

/// `resolve` in situla.toml, and --container-resolve.
struct ResolveRule {
  enum class Kind { job, always, seconds };
  Kind kind = Kind::job;  ///< once for all steps of a job; for each step; when the last answer is older than `age`
  std::chrono::seconds age{0};  ///< of Kind::seconds

  /// "job", "always", or a number of seconds, at most a year; "0" is "always". ErrorKind::usage.
  static Result<ResolveRule> parse(std::string_view text);
  /// Whether it never takes an older answer for good than `other` would.
  [[nodiscard]] bool is_at_least(const ResolveRule& other) const;

  friend bool operator==(const ResolveRule&, const ResolveRule&) = default;
};

/// Behind the image's name, once for a job: a tag means something else by now.
std::string has_moved(const Digest& now, const Digest& kept);
/// What a user reads whose registry does not answer. done: "started", what becomes of the image all the same; age:
/// seconds since the registry let him have it; asked: " (asked 20 s ago, and again in 40 s)" where it was not asked
/// now.
std::string does_not_answer(const std::string& registry, const std::string& name, const std::string& done, uint64_t age,
                            const Digest& manifest, std::string_view asked = "");

}  // namespace situla
