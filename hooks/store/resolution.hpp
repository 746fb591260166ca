// Has the registry to be asked about this image, and what is done with its answer? DESIGN.md section 8.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/spec/site_config.hpp"
#include "hooks/store/grants.hpp"

namespace situla {

/// For one step of a job, by what the registry has answered this user before. It decides about manifests; whoever asks
/// it looks whether the store has their image.
class Resolution {
 public:
  struct Settings {
    ResolveRule rule;
    std::chrono::seconds lifetime{0}, offline{0};  ///< grant_lifetime, grant_offline
  };
  /// A registry that did not answer is not asked again for so long, where there is another way.
  static constexpr uint64_t kSilence = 60;  // seconds
  /// Whether a name still means the same is asked at most so often.
  static constexpr uint64_t kLookAgain = 60;  // seconds
  /// Numbers of jobs begin anew when a controller loses its state.
  static constexpr uint64_t kLongestJob = uint64_t{90} * 24 * 3600;  // seconds

  /// The site's, with the user's own rule where he has one: ErrorKind::denied where the site does not let him ask less.
  static Result<Settings> settings_of(const SiteConfig& config, const std::string& wanted);

  /// job: "123.0"; the part before the point is the job's. now: seconds since the epoch.
  Resolution(const std::string& store, ImageQuestion question, const std::string& job, const Settings& settings,
             uint64_t now);

  /// The manifest that needs no question.
  [[nodiscard]] std::optional<Digest> granted() const;
  /// What the job's other steps have for the name; none: the registry says.
  [[nodiscard]] std::optional<Grant> pinned() const;
  /// What the registry said last: as long as the name means the same index, it means the same manifest.
  [[nodiscard]] const std::optional<Grant>& last() const { return last_; }
  /// What may be started when the registry does not answer. Grant::time: when it said so.
  [[nodiscard]] std::optional<Grant> offline() const;
  /// The registry did not answer a moment ago, as other steps of the user have found.
  [[nodiscard]] bool is_silent() const;
  /// While it is: " (asked 20 s ago, and again in 40 s)".
  [[nodiscard]] std::string when_asked() const;

  /// The registry lets the user have this by the name, or what the job's steps have was asked for. Returns the manifest
  /// for this step: that of the job's first step, which counts as allowed with what is in the same repository.
  Digest answered(const Digest& named, const Digest& manifest);
  /// The same by the word of another node's store, whose registry said so at that time: it is no younger for that.
  Digest heard(const Digest& named, const Digest& manifest, uint64_t time);
  /// Whether what was said then still counts.
  [[nodiscard]] bool is_recent(uint64_t time) const;
  /// When the registry last said that the user may have the manifest; 0: it has not.
  [[nodiscard]] uint64_t granted_at(const Digest& manifest) const;
  /// What the registry was or would be asked, in one text: two that differ in anything are two questions.
  [[nodiscard]] std::string question() const;
  /// It says no. ErrorKind::denied: not to this user; not_found: there is nothing of that name, or by_digest: not that
  /// manifest. Others say nothing.
  void refused(ErrorKind why, bool by_digest);
  /// It does not answer.
  void unanswered();
  /// offline() is started, and is what the job's other steps get as well.
  void started_offline(const Grant& grant);

  /// Whether to ask if the name still means what the job's steps have, while the step runs; marks that it is asked.
  bool look_again();
  void looked_again(const Digest& named, const Digest& manifest);
  /// Once for a job: what the name has come to mean since its first step.
  std::optional<Digest> moved_to();

  [[nodiscard]] uint64_t now() const { return now_; }

 private:
  /// Whether the steps of the job have the name's meaning in common.
  [[nodiscard]] bool pins() const;
  [[nodiscard]] bool is_younger(uint64_t time, std::chrono::seconds limit) const;
  void keep_pin(const JobPin& pin);
  Digest note(const NamedManifest& image, uint64_t time);

  Grants grants_;
  ImageQuestion question_;
  std::string job_;
  Settings settings_;
  uint64_t now_;
  bool by_digest_;  ///< the name is a digest: its meaning cannot change
  std::optional<Grant> last_;
  std::optional<JobPin> pin_;  ///< with ResolveRule::Kind::job
};

}  // namespace situla
