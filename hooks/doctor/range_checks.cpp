#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include <grp.h>

#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/mount/subordinate_ids.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/users.hpp"
#include "hooks/doctor/checks.hpp"
#include "hooks/doctor/probes.hpp"

namespace situla::doctor {
namespace {

constexpr uid_t kNoUser = 4294967295;
constexpr size_t kMostOwners = 16;    ///< of lines, whose ranges are tried
constexpr size_t kMostSamples = 256;  ///< uids, and as many gids
constexpr uint64_t kSampleEvery = 4096;
/// Of what asks the directory service: slurmd waits for the doctor's line when it starts.
constexpr std::chrono::seconds kAskLimit(2);

/// Owners of lines with ids enough, each with his first id, and what tells these lines from those of another node.
struct SubordinateFile {
  std::map<std::string, uint32_t> owners;
  uint32_t mark = 2166136261;  // FNV-1a
};

SubordinateFile look_at_subordinates(const std::string& path) {
  SubordinateFile file;
  const std::string text = read_file(path, size_t{16} << 20U).value_or("");
  std::vector<std::string_view> lines;
  for (const std::string_view line : split_nonempty(text, '\n')) {
    const std::string owner(line.substr(0, line.find(':')));
    const auto first = find_subordinate(line, kNoUser, owner);
    if (!first) continue;
    file.owners.emplace(owner, *first);
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  for (const std::string_view line : lines)
    for (const char c : line) file.mark = (file.mark ^ static_cast<unsigned char>(c)) * 16777619U;
  return file;
}

/// Ids that containers may have: from the first on.
struct RangeIds {
  uint64_t first = 0, count = 0;
};

/// What is written about ranges, and where.
struct WrittenRanges {
  IdFiles files;
  std::vector<std::string> owners;   ///< with a line in both files
  std::vector<RangeIds> uids, gids;  ///< the site's area first, if there is one
  std::string marks;                 ///< of both files
};

WrittenRanges written_ranges(const Places& places, const IdRangeRule& rule) {
  WrittenRanges written;
  written.files.subuid = places.etc + "/subuid";
  written.files.subgid = places.etc + "/subgid";
  written.files.passwd = places.etc + "/passwd";
  written.files.group = places.etc + "/group";
  written.files.nsswitch = places.etc + "/nsswitch.conf";
  if (rule.area.users > 0) {
    written.uids.push_back({rule.area.first, rule.area.users * IdArea::kEach});
    written.gids = written.uids;
  }
  if (rule.files == SubordinateFiles::never) return written;
  const SubordinateFile uids = look_at_subordinates(written.files.subuid);
  const SubordinateFile gids = look_at_subordinates(written.files.subgid);
  written.marks = std::to_string(uids.mark) + " " + std::to_string(gids.mark);
  for (const auto& [owner, first_uid] : uids.owners) {
    const auto of_groups = gids.owners.find(owner);
    if (of_groups == gids.owners.end()) continue;
    written.owners.push_back(owner);
    written.uids.push_back({first_uid, IdRange::kCount});
    written.gids.push_back({of_groups->second, IdRange::kCount});
  }
  return written;
}

std::vector<uint32_t> sample_of(const std::vector<RangeIds>& ranges) {
  uint64_t all = 0;
  for (const RangeIds& range : ranges) all += range.count;
  const uint64_t every = std::max(kSampleEvery, all / kMostSamples);
  std::vector<uint32_t> sample;
  for (const RangeIds& range : ranges) {
    if (sample.size() >= kMostSamples) break;
    for (uint64_t next = 0; next < range.count; next += every)
      sample.push_back(static_cast<uint32_t>(range.first + next));
    sample.push_back(static_cast<uint32_t>(range.first + range.count - 1));
  }
  return sample;
}

/// The first account or group that has one of these ids, wherever the node knows it from; empty: none was found.
Result<std::string> find_taken(const WrittenRanges& written) {
  for (const uint32_t uid : sample_of(written.uids)) {
    TRY_ASSIGN(const auto user, find_user(uid));
    if (user) return "uid " + std::to_string(uid) + " is the account " + printable(user->name);
  }
  for (const uint32_t gid : sample_of(written.gids))
    if (const group* entry = getgrgid(gid); entry != nullptr)
      return "gid " + std::to_string(gid) + " is the group " + printable(entry->gr_name);
  return std::string();
}

constexpr std::string_view kUnprivileged = "-";

/// Why the lines of an owner give him nothing; kUnprivileged: nobody's count; empty: none was found.
Result<std::string> find_refusal(const WrittenRanges& written, SubordinateFiles when) {
  for (size_t i = 0; i < written.owners.size() && i < kMostOwners; ++i) {
    const std::string& owner = written.owners[i];
    Identity user;
    if (const auto number = parse_unsigned(owner); number && *number < kNoUser) {
      const auto id = static_cast<uint32_t>(*number);
      user = {id, id, {id}};
    } else if (auto known = identity_of_user(owner)) {
      user = std::move(*known);
    } else {
      continue;
    }
    const auto range = find_id_range(user, {SubordinateFiles::always, {}}, written.files);
    if (!range && range.error().kind() == ErrorKind::denied)
      return printable(owner) + " has none: " + range.error().message();
    if (range && !find_id_range(user, {when, {}}, written.files)) return std::string(kUnprivileged);
  }
  return std::string();
}

bool has_newuidmap() {
  constexpr std::array kPrograms = {"newuidmap", "newgidmap"};
  return std::all_of(kPrograms.begin(), kPrograms.end(),
                     [](const char* name) { return !situla::find_program(name, "/usr/bin:/bin:/usr/sbin").empty(); });
}

void warn_of(Check& check, const std::string& found, const std::string& fix) {
  check.found += "; " + found;
  check.state = State::warn;
  if (check.fix.empty()) check.fix = fix;
}

/// What is wrong with the lines of the two files. False: none of them counts.
bool check_lines_of_files(Check& check, const WrittenRanges& written, SubordinateFiles when) {
  if (written.owners.empty()) return false;
  const bool programs = has_newuidmap();
  const std::string refusal = in_child([&] { return find_refusal(written, when); }, kAskLimit).value_or("");
  if (when == SubordinateFiles::automatic && (!programs || refusal == kUnprivileged)) {
    check.found += ", which do not count: newuidmap and newgidmap are not installed with their privileges";
    return false;
  }
  if (!refusal.empty())
    warn_of(check, refusal, "no id of an account, of a group or of another's line may lie in a range: subuid(5)");
  if (!programs)
    warn_of(check, "newuidmap or newgidmap is missing",
            "start, export and remove by hand need them for containers with a range: package uidmap or shadow-utils");
  return true;
}

void check_area_of_site(Check& check, const IdArea& area, const IdFiles& files) {
  const auto first = static_cast<uid_t>(area.first_uid);
  check.found += ", and uids from " + std::to_string(first) + " to " + std::to_string(area.first_uid + area.users - 1) +
                 " by id_ranges";
  const auto range = find_id_range({first, first, {first}}, {SubordinateFiles::never, area}, files);
  if (range || range.error().kind() != ErrorKind::denied) return;
  check.found += ", which gives nobody any: " + range.error().message();
  check.state = State::warn;
  check.fix = "choose an area in which nobody has an id (situla.toml(5), id_ranges)";
}

/// Who ends the processes that became other users of a range?
Check check_range_processes(const SlurmFiles& files) {
  constexpr const char* kName = "range-processes";
  // Slurm's own default is cgroup; newer ones take the name without "proctrack/".
  if (files.proctrack.empty() || to_lower(files.proctrack).ends_with("cgroup"))
    return {kName, State::ok, "end with their job's cgroup", ""};
  return {kName, State::warn, files.proctrack + " misses programs that became other users in a container",
          "ProctrackType=proctrack/cgroup in slurm.conf"};
}

struct MountedAt {
  std::string_view source, path, type;
  bool nosuid = false;
};

/// The last one that covers the path, as proc_pid_mounts(5) has them.
MountedAt mounted_at(std::string_view mounts, std::string_view path) {
  MountedAt found;
  for (const std::string_view line : split_nonempty(mounts, '\n')) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.size() < 4) continue;
    const std::string_view top = words[1];
    const bool covers = top == "/" || (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'));
    if (!covers || top.size() < found.path.size()) continue;
    const auto options = split_nonempty(words[3], ',');
    found = {words[0], top, words[2], std::find(options.begin(), options.end(), "nosuid") != options.end()};
  }
  return found;
}

bool is_of_node(const MountedAt& mount) {
  constexpr std::array<std::string_view, 4> kTypes = {"tmpfs", "overlay", "zfs", "ramfs"};
  return mount.source.starts_with("/dev/") || std::find(kTypes.begin(), kTypes.end(), mount.type) != kTypes.end();
}

/// Where does a set-user-ID file of an id outlive the right to it?
Check check_range_files(const Places& places) {
  const std::string mounts = read_file(places.proc + "/self/mounts", size_t{4} << 20U).value_or("");
  std::vector<std::string> open;
  for (const char* path : {"/tmp", "/var/tmp", "/dev/shm", "/home"})
    if (const MountedAt mount = mounted_at(mounts, path); is_of_node(mount) && !mount.nosuid) open.emplace_back(path);
  if (open.empty()) return {"range-files", State::ok, "directories of all users are mounted nosuid", ""};
  return {
      "range-files", State::info,
      "mounted without nosuid: " + join(open, ", ") + "; set-user-ID files of a range work there after the job, too",
      ""};
}

}  // namespace

Check check_id_ranges(const Places& places, const SiteConfig& config) {
  const IdRangeRule& rule = config.id_ranges;
  if (rule.off()) return {"id-ranges", State::info, "off: nobody is a whole root in containers", ""};
  WrittenRanges written = written_ranges(places, rule);
  const size_t users = written.owners.size();
  Check check{"id-ranges", State::info,
              std::to_string(users) + (users == 1 ? " user" : " users") + " by /etc/subuid and /etc/subgid", ""};
  const bool count = check_lines_of_files(check, written, rule.files);
  check.facts = {{"files", count ? written.marks : kNoRangeLines}};
  if (rule.area.users > 0) {
    // How many users it is for may differ: a table grows.
    check.facts.emplace_back("table",
                             std::to_string(rule.area.first) + " for uid " + std::to_string(rule.area.first_uid));
    check_area_of_site(check, rule.area, written.files);
  }
  if (!count && rule.area.users == 0) return check;
  // The site's area, which is the first, is in force alone then.
  if (!count)
    for (auto* ids : {&written.uids, &written.gids}) ids->resize(1);
  const std::string taken = in_child([&] { return find_taken(written); }, kAskLimit).value_or("");
  if (!taken.empty())
    warn_of(check, taken + ", and lies in a range",
            "keep ranges and ids of accounts apart: sssd.conf(5) has ldap_idmap_range_min; or id_ranges = \"off\"");
  return check;
}

std::vector<Check> check_ranges(const Places& places, const SiteConfig& config, const SlurmFiles& files) {
  std::vector<Check> checks = {check_id_ranges(places, config)};
  const auto& facts = checks.front().facts;
  const bool by_files = !facts.empty() && facts.front().second != kNoRangeLines;
  if (!by_files && config.id_ranges.area.users == 0) return checks;
  if (!files.slurm_conf.empty()) checks.push_back(check_range_processes(files));
  checks.push_back(check_range_files(places));
  return checks;
}

}  // namespace situla::doctor
