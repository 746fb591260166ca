#include "common/spec/resolve_rule.hpp"

#include "common/base/text.hpp"

namespace situla {

Result<ResolveRule> ResolveRule::parse(std::string_view text) {
  constexpr uint64_t kOneYear = 365ULL * 24 * 3600;
  if (text == "job") return ResolveRule{};
  if (text == "always") return ResolveRule{Kind::always};
  const auto seconds = parse_unsigned(text);
  if (!seconds || *seconds > kOneYear)
    return fail(
        Error(ErrorKind::usage, R"(must be "job", "always" or a number of seconds, not ")" + printable(text) + '"')
            .with_code(ErrorCode::option));
  if (*seconds == 0) return ResolveRule{Kind::always};
  return ResolveRule{Kind::seconds, std::chrono::seconds(*seconds)};
}

bool ResolveRule::is_at_least(const ResolveRule& other) const {
  if (kind == Kind::always || *this == other) return true;
  // A job may take a minute or a month: it is neither more nor less than any number of seconds.
  return kind == Kind::seconds && other.kind == Kind::seconds && age <= other.age;
}

std::string has_moved(const Digest& now, const Digest& kept) {
  return " has moved since this job's first step: it means " + now.text() + " by now, and this job goes on with " +
         kept.text() + " (--container-resolve=always, or a new job, gets the new one)";
}

std::string does_not_answer(const std::string& registry, const std::string& name, const std::string& done, uint64_t age,
                            const Digest& manifest, std::string_view asked) {
  const uint64_t minutes = age / 60;
  return registry + " does not answer" + std::string(asked) + ": " + name + " is " + done + " as it was " +
         (minutes < 120 ? std::to_string(minutes) + " min" : std::to_string(minutes / 60) + " h") + " ago, " +
         manifest.text();
}

}  // namespace situla
