#include "common/sys/mount/subordinate_ids.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/users.hpp"

namespace situla {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20U;

/// Fails for one that others than root may write. One that is not there is empty.
Result<std::string> read_root_file(const std::string& path) {
  const auto file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (!file && file.error().errnum() == ENOENT) return std::string();
  if (!file) return fail(file.error());
  struct stat status {};
  if (fstat(file->get(), &status) != 0) return fail_errno(errno, "inspect " + path);
  if (!S_ISREG(status.st_mode) || status.st_uid != 0 || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fail(ErrorKind::denied, path + " is not a file that only root can write");
  return read_all(file->get(), kMostBytes);
}

struct Line {
  std::string_view owner;
  uint64_t first = 0, count = 0;
};

/// Decimal, and nothing that another program may take for octal.
std::optional<uint64_t> parse_number(std::string_view text) {
  return text.size() > 1 && text.front() == '0' ? std::nullopt : parse_unsigned(text);
}

/// Whatever numbers it has.
std::optional<Line> parse_any_line(std::string_view text) {
  const auto fields = split(text, ':');
  if (fields.size() != 3 || fields[0].empty()) return std::nullopt;
  const auto first = parse_number(fields[1]), count = parse_number(fields[2]);
  return first && count ? std::optional(Line{fields[0], *first, *count}) : std::nullopt;
}

std::optional<Line> parse_line(std::string_view text) {
  const auto line = parse_any_line(text);
  if (!line || line->first == 0 || line->count == 0 || line->first > IdArea::kLastId ||
      line->count - 1 > IdArea::kLastId - line->first)
    return std::nullopt;
  return line;
}

/// Ids of which nobody else may have one.
struct Span {
  uint64_t first = 0, count = 0;
  [[nodiscard]] bool has(uint64_t id) const { return id >= first && id - first < count; }
  [[nodiscard]] bool meets(const Span& other) const {
    return count > 0 && other.count > 0 && (has(other.first) || other.has(first));
  }
};

/// Whether a file of lines whose fields are separated by colons (passwd(5), group(5)) has an id of the span there.
bool has_id_in(const Span& span, size_t field, std::string_view text) {
  for (const std::string_view line : split_nonempty(text, '\n')) {
    const auto fields = split(line, ':');
    const auto id = fields.size() > field ? parse_unsigned(fields[field]) : std::nullopt;
    if (id && span.has(*id)) return true;
  }
  return false;
}

/// Nobody but `owners` has a line with ids of the span. A line that is not understood may mean anything to others.
Result<void> check_lines(const Span& span, const std::vector<std::string>& owners, std::string_view text,
                         const std::string& path) {
  for (const std::string_view each : split_nonempty(text, '\n')) {
    const std::string_view line = trim(each);
    if (line.empty() || line.front() == '#') continue;
    const auto found = parse_any_line(each);
    if (!found) return fail(ErrorKind::denied, path + ": the line '" + printable(each) + "' is not understood");
    if (std::find(owners.begin(), owners.end(), found->owner) != owners.end()) continue;
    if (span.meets({found->first, std::min(found->count, IdArea::kLastId)}))
      return fail(ErrorKind::denied, path + ": ids of " + printable(found->owner) + " lie in it");
  }
  return {};
}

/// nsswitch.conf(5): where somebody else answers for subordinate ids, the files are nobody's word. newuidmap(1) asks
/// the first source alone.
bool files_answer(std::string_view nsswitch) {
  for (const std::string_view each : split_nonempty(nsswitch, '\n')) {
    const std::string_view line = trim(each.substr(0, each.find('#')));
    if (!line.starts_with("subid:")) continue;
    const auto words = split_words(line.substr(line.find(':') + 1));
    return !words.empty() && words.front() == "files";
  }
  return true;
}

/// Whether every user may run it, and it has root's privileges or some of them.
bool is_privileged_program(const std::string& path) {
  struct stat status {};
  constexpr mode_t kOfOthers = S_IWGRP | S_IWOTH;
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != 0) return false;
  if ((status.st_mode & kOfOthers) != 0 || (status.st_mode & S_IXOTH) == 0) return false;
  return (status.st_mode & S_ISUID) != 0 || getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
}

bool files_count(SubordinateFiles when, const IdFiles& files) {
  if (when != SubordinateFiles::automatic) return when == SubordinateFiles::always;
  return is_privileged_program(files.newuidmap) && is_privileged_program(files.newgidmap);
}

/// The text of each file, when all of them can be relied on.
struct Texts {
  std::string subuid, subgid, passwd, group;
};

/// None of the user's own ids, no account and no group that the node's files know lies in it.
Result<void> check_accounts(const Span& uids, const Span& gids, const Identity& user, const Texts& texts,
                            const IdFiles& files) {
  const bool own = uids.has(user.uid) || gids.has(user.gid) ||
                   std::any_of(user.groups.begin(), user.groups.end(), [&](gid_t group) { return gids.has(group); });
  if (own) return fail(ErrorKind::denied, "an id or a group of the user's own lies in it");
  constexpr size_t kId = 2, kGroup = 3;
  if (has_id_in(uids, kId, texts.passwd) || has_id_in(gids, kGroup, texts.passwd))
    return fail(ErrorKind::denied, files.passwd + " has an id that lies in it");
  if (has_id_in(gids, kId, texts.group)) return fail(ErrorKind::denied, files.group + " has an id that lies in it");
  return {};
}

Result<void> check_area(const IdArea& area, const Identity& user, const Texts& texts, const IdFiles& files) {
  if (const std::string problem = area.problem(); !problem.empty()) return fail(ErrorKind::denied, problem);
  const Span span{area.first, area.users * IdArea::kEach};
  TRY(check_accounts(span, span, user, texts, files));
  TRY(check_lines(span, {}, texts.subuid, files.subuid));
  return check_lines(span, {}, texts.subgid, files.subgid);
}

/// Name of the account with that uid, or uid of the one with that name, in a passwd(5) file.
std::optional<std::string_view> field_of_account(std::string_view passwd, size_t field, std::string_view value,
                                                 size_t wanted) {
  for (const std::string_view line : split_nonempty(passwd, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() > std::max(field, wanted) && fields[field] == value) return fields[wanted];
  }
  return std::nullopt;
}

/// Whether all whom a file gives ids are accounts of this node.
bool are_known(std::string_view lines, std::string_view passwd) {
  const auto each = split_nonempty(lines, '\n');
  return std::all_of(each.begin(), each.end(), [&](std::string_view line) {
    const auto parsed = parse_any_line(line);
    return !parsed || parse_unsigned(parsed->owner) || field_of_account(passwd, 0, parsed->owner, 2);
  });
}

/// Who the user is in the files. ErrorKind::denied when nobody can tell: then another rule must not count instead. A
/// directory service is asked, which may take its time, only where the node's own files do not say it.
Result<std::vector<std::string>> owners_of(uid_t uid, const Texts& texts) {
  std::vector<std::string> owners = {std::to_string(uid)};
  if (const auto name = field_of_account(texts.passwd, 2, owners.front(), 0)) {
    if (!parse_unsigned(*name)) owners.emplace_back(*name);
    return owners;
  }
  if (are_known(texts.subuid, texts.passwd) && are_known(texts.subgid, texts.passwd)) return owners;
  const auto user = find_user(uid);
  if (!user) return fail(Error(user.error()).with_context("find a range of ids"));
  // A name that is a number is somebody else's number.
  if (*user && !parse_unsigned((*user)->name)) owners.push_back((*user)->name);
  return owners;
}

Result<std::optional<IdRange>> range_of_files(const Texts& texts, const Identity& user, const IdFiles& files) {
  // Where neither has a line, nobody needs to know what the user is called.
  if (texts.subuid.empty() || texts.subgid.empty()) return std::optional<IdRange>();
  TRY_ASSIGN(const std::string nsswitch, read_root_file(files.nsswitch));
  if (!files_answer(nsswitch)) return std::optional<IdRange>();
  TRY_ASSIGN(const std::vector<std::string> owners, owners_of(user.uid, texts));
  const std::string name = owners.size() > 1 ? owners.back() : "";
  const auto first_uid = find_subordinate(texts.subuid, user.uid, name),
             first_gid = find_subordinate(texts.subgid, user.uid, name);
  if (!first_uid || !first_gid) return std::optional<IdRange>();
  const Span uids{*first_uid, IdRange::kCount}, gids{*first_gid, IdRange::kCount};
  TRY(check_accounts(uids, gids, user, texts, files));
  TRY(check_lines(uids, owners, texts.subuid, files.subuid));
  TRY(check_lines(gids, owners, texts.subgid, files.subgid));
  return std::optional(IdRange{*first_uid, *first_gid});
}

}  // namespace

std::string IdArea::problem() const {
  if (users == 0 || first_uid == 0) return "first_uid and users must be at least 1";
  if (first < kEach) return "first must be at least 65536";
  if (first > kLastId || users > (kLastId - first + 1) / kEach) return "it goes beyond the last id, 4294967294";
  if (first_uid < first + users * kEach && first_uid + users > first)
    return "it contains users to whom it gives ranges";
  return "";
}

std::optional<IdRange> IdArea::range_of(uid_t uid) const {
  if (uid < first_uid || uid - first_uid >= users) return std::nullopt;
  const auto begin = static_cast<uint32_t>(first + (uid - first_uid) * kEach);
  return IdRange{begin, begin};
}

std::optional<uint32_t> find_subordinate(std::string_view text, uid_t uid, std::string_view name) {
  const std::string number = std::to_string(uid);
  for (const std::string_view line : split_nonempty(text, '\n')) {
    const std::string_view owner = line.substr(0, line.find(':'));
    if (owner != number && (name.empty() || owner != name)) continue;
    const auto found = parse_line(line);
    if (found && found->count >= IdRange::kCount) return static_cast<uint32_t>(found->first);
  }
  return std::nullopt;
}

Result<IdRange> find_id_range(const Identity& user, const IdRangeRule& rule, const IdFiles& files) {
  constexpr uint32_t kLastInside = 65535, kNobody = 65534;
  for (const uint32_t id : {user.uid, user.gid})
    if (id == 0 || id == kNobody || id == kLastInside)
      return fail(ErrorKind::not_found, "find a range of ids: this user can have none");
  if (rule.off()) return fail(ErrorKind::not_found, "find a range of ids: the site gives none");
  if (std::find(user.groups.begin(), user.groups.end(), user.gid) == user.groups.end())
    return fail(ErrorKind::not_found, "find a range of ids: the user's own group is not among his groups");
  const bool by_files = files_count(rule.files, files);
  if (!by_files && rule.area.users == 0)
    return fail(ErrorKind::not_found,
                "find a range of ids: newuidmap and newgidmap are not here, or without privileges");
  Texts texts;
  TRY_ASSIGN(texts.subuid, read_root_file(files.subuid));
  TRY_ASSIGN(texts.subgid, read_root_file(files.subgid));
  // Nobody has one: most nodes.
  if (rule.area.users == 0 && (texts.subuid.empty() || texts.subgid.empty()))
    return fail(ErrorKind::not_found, "find a range of ids: nobody gives this user one");
  TRY_ASSIGN(texts.passwd, read_root_file(files.passwd));
  TRY_ASSIGN(texts.group, read_root_file(files.group));
  std::optional<IdRange> range;
  if (by_files) {
    auto found = range_of_files(texts, user, files);
    if (!found) return fail(std::move(found).error().with_context("use a range of " + files.subuid));
    range = *found;
  }
  if (!range && rule.area.users > 0) {
    range = rule.area.range_of(user.uid);
    if (range) TRY_CONTEXT("id_ranges of situla.toml", check_area(rule.area, user, texts, files));
  }
  if (!range) return fail(ErrorKind::not_found, "find a range of ids: nobody gives this user one");
  return *range;
}

}  // namespace situla
