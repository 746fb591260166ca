#include "hooks/sources/job_answers.hpp"

#include <chrono>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "hooks/registry/sha256.hpp"

namespace situla {
namespace {

constexpr const char* kDirectory = "situla-jobs";
constexpr uint64_t kLongest = 7 * 24 * 3600;  // seconds
constexpr WireForm kForm{.what = "answer for a job", .version = 0x4a410001, .most_bytes = 1024};
constexpr size_t kNameDigits = 32;

}  // namespace

Result<JobAnswers> JobAnswers::open(const std::string& cache, const JobName& job, const std::string& image,
                                    const ResolveRule& rule) {
  TRY_ASSIGN(const auto own, PrivateDirectory::own_within(cache, "situla", "ENROOT_CACHE_PATH"));
  TRY(make_directories(own.held(kDirectory), 0700));
  TRY_ASSIGN(auto directory, own.below(kDirectory));
  // What was said to one job is no answer for another one, except where time alone counts.
  const std::string of = rule.kind == ResolveRule::Kind::job ? printable(host_name()) + "." + job.number : "any";
  return JobAnswers(std::move(directory), of + "." + digest_of(job.cluster + "\n" + image).hex().substr(0, kNameDigits),
                    rule);
}

std::optional<JobAnswer> JobAnswers::find(uint64_t now) const {
  if (rule_.kind == ResolveRule::Kind::always) return std::nullopt;
  const auto bytes = read_file(directory_.held(name_), kForm.most_bytes);
  const auto answer = bytes ? from_wire<JobAnswer>(*bytes, kForm) : fail(bytes.error());
  const auto longest = rule_.kind == ResolveRule::Kind::seconds ? static_cast<uint64_t>(rule_.age.count()) : kLongest;
  if (!answer || answer->asked > now || now - answer->asked >= longest) return std::nullopt;
  return *answer;
}

JobAnswer JobAnswers::keep_first(const JobAnswer& answer) const {
  constexpr std::chrono::seconds kLimit{5};  // then without
  const auto alone = FileLock::acquire(directory_.held(name_) + ".lock", FileLock::Kind::exclusive, kLimit);
  if (auto first = find(answer.asked)) return *first;
  (void)keep(answer);
  return answer;
}

Result<void> JobAnswers::keep(const JobAnswer& answer) const {
  for (const std::string& name : list_directory(directory_.held()).value_or(std::vector<std::string>())) {
    struct stat status {};
    const std::string path = directory_.held(name);
    if (stat(path.c_str(), &status) == 0 && static_cast<uint64_t>(status.st_mtime) + kLongest < answer.looked)
      unlink(path.c_str());
  }
  return write_file_atomically(directory_.held(name_), to_wire(answer, kForm), 0600, Sync::no);
}

}  // namespace situla
