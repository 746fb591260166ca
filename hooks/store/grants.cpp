#include "hooks/store/grants.hpp"

#include <algorithm>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/codec.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/spec/image_reference.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "hooks/registry/sha256.hpp"
#include "hooks/store/image_store.hpp"

namespace situla {
namespace {

constexpr mode_t kGrantMode = 0600, kGrantsMode = 0700;
constexpr WireForm kGrantForm{.what = "grant", .version = 0x47520001, .most_bytes = size_t{16} << 10U};

/// What a file is about, with lengths: no two run together into one text.
std::string subject_of(const ImageQuestion& question, const std::string& job = "") {
  Encoder out;
  out.text("situla grant 1");
  out.u64(question.uid);
  for (const std::string* part : {&question.origin.registry, &question.origin.repository, &question.name,
                                  &question.platform, &question.login, &job})
    out.text(*part);
  return out.take();
}

std::string subject_of(uid_t uid, const std::string& registry) {
  Encoder out;
  out.text("situla silent registry 1");
  out.u64(uid);
  out.text(registry);
  return out.take();
}

struct GrantFile {
  std::string subject, origin;
  Grant grant;
  static auto fields(auto& it) { return std::tie(it.subject, it.origin, it.grant); }
};
struct PinFile {
  std::string subject;
  JobPin pin;
  static auto fields(auto& it) { return std::tie(it.subject, it.pin); }
};
struct SilenceFile {
  std::string subject;
  uint64_t time = 0;
  static auto fields(auto& it) { return std::tie(it.subject, it.time); }
};

std::string name_of(const std::string& subject) {
  constexpr size_t kDigits = 40;
  return digest_of(subject).hex().substr(0, kDigits);
}

}  // namespace

Result<ImageQuestion> ImageQuestion::of(const ImportRequest& request, uid_t uid, const Origin& origin) {
  TRY_ASSIGN(const ImageReference reference, ImageReference::parse(request.image));
  Platform platform = Platform::host();
  if (!request.platform.empty()) {
    TRY_ASSIGN(platform, Platform::parse(request.platform));
  }
  ImageQuestion question{uid, origin, reference.manifest_name(),
                         platform.os + "/" + platform.architecture + "/" + platform.variant, reference.user};
  if (reference.digest) question.tag = reference.tag;
  return question;
}

template <typename Record>
std::optional<Record> Grants::read(const std::string& subject) const {
  const auto file = open_file(directory_ + "/" + name_of(subject), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (!file || fstat(file->get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      status.st_nlink != 1)
    return std::nullopt;
  const auto bytes = read_all(file->get(), kGrantForm.most_bytes);
  if (!bytes) return std::nullopt;
  auto record = from_wire<Record>(*bytes, kGrantForm);
  if (!record || record->subject != subject) return std::nullopt;
  return std::move(*record);
}

template <typename Record>
Result<void> Grants::write(const std::string& subject, const Record& record) const {
  const std::string path = directory_ + "/" + name_of(subject);
  TRY(make_directories(directory_, kGrantsMode));
  // Now and then: to count them takes a millisecond.
  if (name_of(subject).front() == '0' && access(path.c_str(), F_OK) != 0) trim();
  return write_file_atomically(path, to_wire(record, kGrantForm), kGrantMode, Sync::no);
}

void Grants::trim() const {
  const auto names = list_directory(directory_);
  if (!names || names->size() < kMostFiles) return;
  std::vector<std::pair<timespec, std::string>> files;
  for (const std::string& name : *names) {
    struct stat status {};
    if (stat((directory_ + "/" + name).c_str(), &status) == 0) files.emplace_back(status.st_mtim, name);
  }
  const auto middle = files.begin() + static_cast<ptrdiff_t>(files.size() / 2);
  std::nth_element(files.begin(), middle, files.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.tv_sec, a.first.tv_nsec) < std::pair(b.first.tv_sec, b.first.tv_nsec);
  });
  std::for_each(files.begin(), middle,
                [this](const auto& file) { (void)unlink((directory_ + "/" + file.second).c_str()); });
}

std::optional<Grant> Grants::find(const ImageQuestion& question) const {
  const auto file = read<GrantFile>(subject_of(question));
  return file ? std::optional(file->grant) : std::nullopt;
}

Result<void> Grants::put(const ImageQuestion& question, const Grant& grant) const {
  const std::string subject = subject_of(question);
  return write(subject, GrantFile{subject, origin_key(question.origin), grant});
}

void Grants::drop(const ImageQuestion& question) const {
  (void)unlink((directory_ + "/" + name_of(subject_of(question))).c_str());
}

void Grants::drop_all(const Origin& origin) const {
  const std::string key = origin_key(origin);
  for (const std::string& name : list_directory(directory_).value_or(std::vector<std::string>())) {
    const auto bytes = read_file(directory_ + "/" + name, kGrantForm.most_bytes);
    const auto file = bytes ? from_wire<GrantFile>(*bytes, kGrantForm) : fail(bytes.error());
    if (file && file->origin == key) (void)unlink((directory_ + "/" + name).c_str());
  }
}

std::optional<JobPin> Grants::find_pin(const ImageQuestion& question, const std::string& job) const {
  const auto file = read<PinFile>(subject_of(question, job));
  return file ? std::optional(file->pin) : std::nullopt;
}

Result<void> Grants::put_pin(const ImageQuestion& question, const std::string& job, const JobPin& pin) const {
  const std::string subject = subject_of(question, job);
  return write(subject, PinFile{subject, pin});
}

uint64_t Grants::silent_since(const std::string& registry) const {
  const auto file = read<SilenceFile>(subject_of(uid_, registry));
  return file ? file->time : 0;
}

Result<void> Grants::put_silent(const std::string& registry, uint64_t time) const {
  const std::string subject = subject_of(uid_, registry);
  return write(subject, SilenceFile{subject, time});
}

void Grants::drop_silent(const std::string& registry) const {
  (void)unlink((directory_ + "/" + name_of(subject_of(uid_, registry))).c_str());
}

std::map<std::string, std::set<uid_t>> granted_users(const std::string& store, std::optional<uid_t> only) {
  std::map<std::string, std::set<uid_t>> users;
  const std::string grants = store + "/grants/";
  for (const std::string& user : list_directory(grants).value_or(std::vector<std::string>())) {
    const auto uid = parse_unsigned(user);
    if (!uid || *uid >= UINT32_MAX || (only && *uid != *only)) continue;
    for (const std::string& name : list_directory(grants + user).value_or(std::vector<std::string>())) {
      const auto bytes = read_file(grants + user + "/" + name, kGrantForm.most_bytes);
      const auto file = bytes ? from_wire<GrantFile>(*bytes, kGrantForm) : fail(bytes.error());
      if (file) users[file->grant.manifest.hex() + "." + file->origin].insert(static_cast<uid_t>(*uid));
    }
  }
  return users;
}

}  // namespace situla
