#include "hooks/store/resolution.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace situla {

Result<Resolution::Settings> Resolution::settings_of(const SiteConfig& config, const std::string& wanted) {
  Settings settings{config.resolve, config.grant_lifetime, config.grant_offline};
  if (wanted.empty()) return settings;
  TRY_ASSIGN(settings.rule, ResolveRule::parse(wanted));
  if (!config.resolve_choice && !settings.rule.is_at_least(config.resolve))
    return fail(
        Error(ErrorKind::denied, "--container-resolve=" + wanted + ": this site does not let its users choose it")
            .with_code(ErrorCode::option)
            .with_hint("\"always\" is possible; see resolve_choice in /etc/situla/situla.toml"));
  return settings;
}

Resolution::Resolution(const std::string& store, ImageQuestion question, const std::string& job,
                       const Settings& settings, uint64_t now)
    : grants_(store, question.uid),
      question_(std::move(question)),
      job_(job.substr(0, job.find('.'))),
      settings_(settings),
      now_(now),
      by_digest_(Digest::parse(question_.name).has_value()),
      last_(grants_.find(question_)) {
  if (!pins()) return;
  pin_ = grants_.find_pin(question_, job_);
  if (pin_ && !is_younger(pin_->grant.time, std::chrono::seconds(kLongestJob))) pin_.reset();
}

bool Resolution::pins() const {
  return settings_.rule.kind == ResolveRule::Kind::job && !by_digest_ && !job_.empty();
}

/// A time that has not come yet is nobody's word.
bool Resolution::is_younger(uint64_t time, std::chrono::seconds limit) const {
  return time <= now_ && now_ - time < static_cast<uint64_t>(limit.count());
}

std::optional<Digest> Resolution::granted() const {
  std::optional<Digest> manifest;
  if (pin_)
    manifest = pin_->grant.manifest;
  else if (last_ && (by_digest_ || (settings_.rule.kind == ResolveRule::Kind::seconds &&
                                    is_younger(last_->time, settings_.rule.age))))
    manifest = last_->manifest;
  if (!manifest) return std::nullopt;
  const auto grant = by_digest_ ? last_ : grants_.find(question_.of(*manifest));
  return grant && is_younger(grant->time, settings_.lifetime) ? manifest : std::nullopt;
}

std::optional<Grant> Resolution::pinned() const {
  return pin_ ? std::optional(pin_->grant) : std::nullopt;
}

std::optional<Grant> Resolution::offline() const {
  auto grant = pin_ ? grants_.find(question_.of(pin_->grant.manifest)) : last_;
  if (!pin_ && !by_digest_) {
    const auto beside = grants_.find(question_.of_tag());
    if (beside && (!grant || beside->time > grant->time)) grant = beside;
  }
  return grant && is_younger(grant->time, settings_.offline) ? grant : std::nullopt;
}

bool Resolution::is_silent() const {
  return is_younger(grants_.silent_since(question_.origin.registry), std::chrono::seconds(kSilence));
}

std::string Resolution::when_asked() const {
  const uint64_t ago = now_ - std::min(now_, grants_.silent_since(question_.origin.registry));
  return " (asked " + std::to_string(ago) + " s ago, and again in " +
         std::to_string(kSilence - std::min(kSilence, ago)) + " s)";
}

Digest Resolution::answered(const Digest& named, const Digest& manifest) {
  grants_.drop_silent(question_.origin.registry);
  if (!pin_) return note({named, manifest}, now_);
  if (manifest != pin_->grant.manifest) looked_again(named, manifest);
  (void)grants_.put(question_.of(pin_->grant.manifest), {pin_->grant.manifest, pin_->grant.manifest, now_});
  return pin_->grant.manifest;
}

Digest Resolution::heard(const Digest& named, const Digest& manifest, uint64_t time) {
  time = std::min(time, now_);  // is_recent() lets the nodes' clocks differ
  if (!pin_) return note({named, manifest}, time);
  if (manifest == pin_->grant.manifest) (void)grants_.put(question_.of(manifest), {manifest, manifest, time});
  return pin_->grant.manifest;
}

bool Resolution::is_recent(uint64_t time) const {
  constexpr uint64_t kClocksDiffer = 300;  // seconds, as MUNGE allows
  return time <= now_ + kClocksDiffer && (time >= now_ || is_younger(time, settings_.lifetime));
}

uint64_t Resolution::granted_at(const Digest& manifest) const {
  const auto grant = grants_.find(question_.of(manifest));
  return grant ? grant->time : 0;
}

std::string Resolution::question() const {
  return question_.origin.registry + "/" + question_.origin.repository + "\n" + question_.name + "\n" +
         question_.platform + "\n" + question_.login;
}

Digest Resolution::note(const NamedManifest& image, uint64_t time) {
  const auto& [named, manifest] = image;
  (void)grants_.put(question_.of(manifest), {manifest, manifest, time});
  if (named != manifest) (void)grants_.put(question_.of(named), {named, manifest, time});
  if (by_digest_ && !question_.tag.empty()) (void)grants_.put(question_.of_tag(), {named, manifest, time});
  if (!by_digest_) (void)grants_.put(question_, {named, manifest, time});
  if (!pins()) return manifest;
  if (const auto other = grants_.find_pin(question_, job_);
      other && is_younger(other->grant.time, std::chrono::seconds(kLongestJob)))
    pin_ = other;
  else
    keep_pin({{named, manifest, time}, time, std::nullopt, false});
  return pin_->grant.manifest;
}

void Resolution::refused(ErrorKind why, bool by_digest) {
  if (why != ErrorKind::denied && why != ErrorKind::not_found) return;
  grants_.drop_silent(question_.origin.registry);
  if (why == ErrorKind::denied) return grants_.drop_all(question_.origin);
  grants_.drop(by_digest && pin_ ? question_.of(pin_->grant.manifest) : question_);
}

void Resolution::unanswered() {
  (void)grants_.put_silent(question_.origin.registry, now_);
}

void Resolution::started_offline(const Grant& grant) {
  if (!pin_ && pins()) keep_pin({{grant.named, grant.manifest, now_}, now_, std::nullopt, false});
}

void Resolution::keep_pin(const JobPin& pin) {
  pin_ = pin;
  (void)grants_.put_pin(question_, job_, pin);
}

bool Resolution::look_again() {
  if (!pin_ || is_younger(pin_->asked, std::chrono::seconds(kLookAgain))) return false;
  JobPin pin = *pin_;
  pin.asked = now_;
  keep_pin(pin);
  return true;
}

void Resolution::looked_again(const Digest& named, const Digest& manifest) {
  grants_.drop_silent(question_.origin.registry);
  (void)grants_.put(question_, {named, manifest, now_});
  (void)grants_.put(question_.of(manifest), {manifest, manifest, now_});
  if (!pin_) return;
  const auto moved = manifest == pin_->grant.manifest ? std::nullopt : std::optional(manifest);
  if (pin_->moved == moved) return;
  JobPin pin = *pin_;
  pin.moved = moved;
  pin.told = false;
  keep_pin(pin);
}

std::optional<Digest> Resolution::moved_to() {
  if (!pin_ || !pin_->moved || pin_->told) return std::nullopt;
  JobPin pin = *pin_;
  pin.told = true;
  keep_pin(pin);
  return pin.moved;
}

}  // namespace situla
