// What has a registry answered before: which image did it let a user have, and what did a name mean? DESIGN.md
// section 8.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include <sys/types.h>

#include "common/base/result.hpp"
#include "common/spec/digest.hpp"
#include "hooks/sources/origin.hpp"

namespace situla {

/// May this user have what is called so, and which manifest is it? Two that differ in anything are two questions.
struct ImageQuestion {
  uid_t uid = 0;
  Origin origin;
  std::string name;      ///< a tag, or a digest: "sha256:..."
  std::string platform;  ///< "linux/arm64/v8"
  std::string login{};   ///< ImageReference::user: another one may have other rights
  std::string
      tag{};  ///< beside a name that is a digest, as srun adds it for all nodes of a step; no part of the question

  /// Of what a request asks for. ErrorKind::usage.
  static Result<ImageQuestion> of(const ImportRequest& request, uid_t uid, const Origin& origin);
  /// The same of the image that has this digest.
  [[nodiscard]] ImageQuestion of(const Digest& digest) const { return {uid, origin, digest.text(), platform, login}; }
  /// What a tag meant when it was asked for by a digest beside it: only for when nobody answers.
  [[nodiscard]] ImageQuestion of_tag() const {
    return {uid, origin, "beside a digest: " + (tag.empty() ? name : tag), platform, login};
  }
};

/// Yes.
struct Grant {
  Digest named;       ///< what the name means: an index, or the manifest itself
  Digest manifest;    ///< of the platform
  uint64_t time = 0;  ///< of the answer, seconds since the epoch

  static auto fields(auto& it) { return std::tie(it.named, it.manifest, it.time); }
};

/// What a name means for all steps of a job.
struct JobPin {
  Grant grant;  ///< of the job's first step
  /// When the registry was asked last whether the name still means that, seconds since the epoch.
  uint64_t asked = 0;
  std::optional<Digest> moved;  ///< what it means by now; as Grant::named
  bool told = false;            ///< of that, the user

  static auto fields(auto& it) { return std::tie(it.grant, it.asked, it.moved, it.told); }
};

/// `<store>/grants/<uid>/`: files of the service user, 0600, in directories of 0700. Each says which question it
/// answers; one that lies under another name, or belongs to somebody else, is none. All of them can be lost: the
/// registry is asked again.
class Grants {
 public:
  /// A user has not many more of them: then the older half goes.
  static constexpr size_t kMostFiles = 1024;

  Grants(const std::string& store, uid_t uid) : directory_(store + "/grants/" + std::to_string(uid)), uid_(uid) {}

  [[nodiscard]] std::optional<Grant> find(const ImageQuestion& question) const;
  Result<void> put(const ImageQuestion& question, const Grant& grant) const;
  void drop(const ImageQuestion& question) const;
  /// All that the user has of a repository: it lets him have none of it.
  void drop_all(const Origin& origin) const;

  [[nodiscard]] std::optional<JobPin> find_pin(const ImageQuestion& question, const std::string& job) const;
  Result<void> put_pin(const ImageQuestion& question, const std::string& job, const JobPin& pin) const;

  /// When a registry, as this user reaches it, did not answer; 0: it did, or was not asked. Seconds since the epoch.
  [[nodiscard]] uint64_t silent_since(const std::string& registry) const;
  Result<void> put_silent(const std::string& registry, uint64_t time) const;
  void drop_silent(const std::string& registry) const;

 private:
  template <typename Record>
  [[nodiscard]] std::optional<Record> read(const std::string& name) const;
  template <typename Record>
  Result<void> write(const std::string& name, const Record& record) const;
  void trim() const;

  std::string directory_;
  uid_t uid_;
};

/// Which users, or whether the one, were let have which image, however long ago: by "<digest>.<origin>", the beginning
/// of ImageKey::name().
std::map<std::string, std::set<uid_t>> granted_users(const std::string& store, std::optional<uid_t> user = {});

}  // namespace situla
