#include "hooks/inject/cdi/registry.hpp"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"

namespace situla {
namespace {

/// What ids that a user namespace does not map look like (user_namespaces(7)).
uid_t unmapped_owner() {
  constexpr uid_t kUsual = 65534;
  const auto text = read_file("/proc/sys/kernel/overflowuid", 64);
  return text ? static_cast<uid_t>(parse_unsigned(trim(*text)).value_or(kUsual)) : kUsual;
}

/// In the user namespace of a container root's files are nobody's, and so are those of every other user; there the
/// directory, which the administrator named, has to be enough.
bool root_is_mapped() {
  const auto map = read_file("/proc/self/uid_map", size_t{64} << 10U);
  if (!map) return true;
  const auto words = split_words(*map);
  return words.size() == 3 && words[0] == "0" && words[1] == "0";
}

Result<void> check_owner(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return fail(ErrorKind::denied, "not a regular file");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(Error(ErrorKind::denied, "others than its owner may write to it")
                    .with_code(ErrorCode::cdi)
                    .with_hint("chmod go-w"));
  if (status.st_uid == 0 || status.st_uid == geteuid()) return {};
  if (!root_is_mapped() && status.st_uid == unmapped_owner()) return {};
  return fail(
      Error(ErrorKind::denied, "it belongs to user " + std::to_string(status.st_uid) + ", neither to root nor to you")
          .with_code(ErrorCode::cdi)
          .with_hint("chown root"));
}

/// Opened without blocking: a FIFO would wait for a writer.
Result<std::string> read_trusted(const std::string& file) {
  auto fd = open_file(file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (!fd) {
    if (fd.error().kind() != ErrorKind::denied) return fail(std::move(fd).error());
    return fail(Error(ErrorKind::denied, file + ": Permission denied")
                    .with_code(ErrorCode::cdi)
                    .with_hint("jobs read CDI specifications as their users: chmod a+r " + shell_quote(file)));
  }
  struct stat status {};
  if (fstat(fd->get(), &status) != 0) return fail_errno(errno, "stat " + file);
  TRY_CONTEXT(file, check_owner(status));
  auto text = read_all(fd->get(), cdi::kMostDocumentBytes);
  if (!text) return fail(std::move(text).error().with_context(file));
  return text;
}

std::string kind_of(const cdi::Value& document) {
  const cdi::Value* kind = document.find("kind");
  return kind == nullptr ? "" : kind->text;
}

bool is_specification(std::string_view name) {
  return name.ends_with(".json") || name.ends_with(".yaml");
}

}  // namespace

CdiRegistry CdiRegistry::load(const std::vector<std::string>& directories) {
  CdiRegistry registry;
  registry.directories_ = directories;
  for (size_t i = 0; i < directories.size(); ++i) registry.read_directory(directories[i], i);
  return registry;
}

void CdiRegistry::read_directory(const std::string& directory, size_t priority) {
  auto names = list_directory(directory);
  if (!names) {
    if (names.error().kind() != ErrorKind::not_found) report(std::move(names).error(), "");
    return;
  }
  std::sort(names->begin(), names->end());
  for (const std::string& name : *names)
    if (is_specification(name)) read(directory + "/" + name, priority);
}

void CdiRegistry::read(const std::string& file, size_t priority) {
  const auto text = read_trusted(file);
  if (!text) return report(text.error(), "");
  auto document = file.ends_with(".json") ? cdi::read_json(*text) : cdi::read_yaml(*text);
  if (!document) return report(std::move(document).error().with_context(file), "");
  auto spec = cdi::make_spec(*document, file);
  if (!spec) return report(std::move(spec).error().with_context(file), kind_of(*document));
  add(std::make_unique<cdi::Spec>(std::move(*spec)), priority);
}

void CdiRegistry::add(std::unique_ptr<cdi::Spec> spec, size_t priority) {
  for (const cdi::Device& device : spec->devices) {
    const std::string name = spec->kind + "=" + device.name;
    const auto [place, is_new] = claims_.try_emplace(name, Claim{{spec.get(), &device}, priority, false});
    if (is_new) continue;
    Claim& claim = place->second;
    if (claim.priority < priority) {
      claim = {{spec.get(), &device}, priority, false};
      continue;
    }
    claim.disputed = true;
    report(Error(ErrorKind::corrupt,
                 name + " is in " + claim.device.spec->file + " and in " + spec->file + ": it is taken from neither")
               .with_code(ErrorCode::cdi)
               .with_hint("remove one of the files"),
           spec->kind);
  }
  specs_.push_back(std::move(spec));
}

void CdiRegistry::report(Error error, std::string kind) {
  errors_.push_back(std::move(error).with_code(ErrorCode::cdi));
  error_kinds_.push_back(std::move(kind));
}

CdiDevice CdiRegistry::find(std::string_view name) const {
  const auto found = claims_.find(name);
  return found == claims_.end() || found->second.disputed ? CdiDevice{} : found->second.device;
}

std::vector<CdiDeviceEntry> CdiRegistry::devices() const {
  std::vector<CdiDeviceEntry> entries;
  for (const auto& [name, claim] : claims_)
    if (!claim.disputed) entries.push_back({name, claim.device.spec->file});
  return entries;
}

std::vector<std::string> CdiRegistry::names_of_kind(std::string_view kind) const {
  std::vector<std::string> names;
  for (const auto& [name, claim] : claims_)
    if (!claim.disputed && claim.device.spec->kind == kind) names.push_back(claim.device.device->name);
  return names;
}

std::vector<std::string> CdiRegistry::kinds() const {
  std::vector<std::string> all;
  for (const auto& spec : specs_)
    if (std::find(all.begin(), all.end(), spec->kind) == all.end()) all.push_back(spec->kind);
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<const Error*> CdiRegistry::errors_of_kind(std::string_view kind) const {
  std::vector<const Error*> found;
  for (size_t i = 0; i < errors_.size(); ++i)
    if (error_kinds_[i] == kind) found.push_back(&errors_[i]);
  return found;
}

}  // namespace situla
