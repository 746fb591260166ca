#include "hooks/sources/job_answers.hpp"

#include <array>

#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/registry/sha256.hpp"

namespace situla {
namespace {

constexpr const char* kDirectory = "situla-jobs";
constexpr int64_t kLongest = 7 * 24 * 3600;  // seconds
constexpr size_t kMostBytes = 1024;
constexpr size_t kNameDigits = 32;

/// "DIGEST ASKED LOOKED [MOVED [told]]"
std::optional<JobAnswer> parse(const std::string& text) {
  const auto words = split_nonempty(trim(text), ' ');
  if (words.size() < 3 || words.size() > 5) return std::nullopt;
  const auto digest = Digest::parse(words[0]);
  const auto asked = parse_unsigned(words[1]), looked = parse_unsigned(words[2]);
  if (!digest || !asked || !looked || *asked > INT64_MAX || *looked > INT64_MAX) return std::nullopt;
  JobAnswer answer{*digest, static_cast<int64_t>(*asked), static_cast<int64_t>(*looked), std::nullopt,
                   words.size() == 5};
  if (words.size() > 3)
    if (const auto moved = Digest::parse(words[3])) answer.moved = *moved;
  return answer;
}

}  // namespace

Result<JobAnswers> JobAnswers::open(const std::string& cache, const JobName& job, const std::string& image,
                                    const ResolveRule& rule) {
  TRY_ASSIGN(const auto own, PrivateDirectory::own_within(cache, "situla", "ENROOT_CACHE_PATH"));
  TRY(make_directories(own.held(kDirectory), 0700));
  TRY_ASSIGN(auto directory, own.below(kDirectory));
  // What was said to one job is no answer for another one, except where time alone counts.
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string of = rule.kind == ResolveRule::Kind::job ? printable(host.data()) + "." + job.number : "any";
  return JobAnswers(std::move(directory), of + "." + digest_of(job.cluster + "\n" + image).hex().substr(0, kNameDigits),
                    rule);
}

std::optional<JobAnswer> JobAnswers::find(int64_t now) const {
  if (rule_.kind == ResolveRule::Kind::always) return std::nullopt;
  const auto text = read_file(directory_.held(name_), kMostBytes);
  auto answer = text ? parse(*text) : std::nullopt;
  const int64_t longest = rule_.kind == ResolveRule::Kind::seconds ? rule_.age.count() : kLongest;
  if (!answer || answer->asked > now || answer->asked + longest <= now) return std::nullopt;
  return answer;
}

Result<void> JobAnswers::keep(const JobAnswer& answer) const {
  for (const std::string& name : list_directory(directory_.held()).value_or(std::vector<std::string>())) {
    struct stat status {};
    const std::string path = directory_.held(name);
    if (stat(path.c_str(), &status) == 0 && status.st_mtime + kLongest < answer.looked) unlink(path.c_str());
  }
  std::string text = answer.digest.text() + " " + std::to_string(answer.asked) + " " + std::to_string(answer.looked);
  if (answer.moved) text += " " + answer.moved->text() + (answer.told ? " told" : "");
  return write_file_atomically(directory_.held(name_), text + "\n", 0600, Sync::no);
}

}  // namespace situla
