#include "hooks/doctor/store_checks.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/sys/file.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/users.hpp"
#include "hooks/doctor/probes.hpp"

namespace situla::doctor {
namespace {

using std::chrono::milliseconds;

constexpr std::array<std::string_view, 3> kModes = {"node", "shared", "sbcast"};  // in the order of StoreMode
constexpr milliseconds kClocksAgree{5000};
constexpr size_t kIdDigits = 32;
constexpr milliseconds kVisible{10000}, kPoll{100};  ///< a name that another node made may be seen seconds later
constexpr std::chrono::seconds kChildLimit{25};

milliseconds since_epoch(const timespec& time) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

milliseconds now_since_epoch() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch());
}

std::optional<std::string> read_id(const std::string& path) {
  const auto text = read_file(path, 256);
  const std::string id(trim(text.value_or("")));
  if (id.size() != kIdDigits || id.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  return id;
}

std::string seconds_text(milliseconds time) {
  const int64_t tenths = time.count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::vector<Check> shared_checks(const SiteConfig& config, const MountedFrom& place, bool root_refused) {
  const Result<StoreTrial> trial = try_store(config.store_path);
  std::vector<Check> checks = {check_store_access(config, trial, root_refused)};
  if (!trial) return checks;
  checks.push_back(check_store_leases(place, trial->lease_errnum));
  checks.push_back(check_store_clock(trial->ahead));
  return checks;
}

/// What the store's owner finds, who this process is.
std::vector<Check> checks_of_owner(const SiteConfig& config, const Environment& environment, bool root_refused) {
  const MountedFrom place = mounted_from(config.store_path);
  std::vector<Check> checks = {check_store_mode(config, place)};
  const StoreMode mode = store_mode(config, place);
  if (mode == StoreMode::sbcast) checks.push_back(check_munge(config.service_user, environment));
  if (mode != StoreMode::shared) return checks;
  for (Check& check : shared_checks(config, place, root_refused)) checks.push_back(std::move(check));
  return checks;
}

/// In a child that becomes this user; what it finds comes back as a report.
Result<std::vector<Check>> checks_as(const Identity& user, const std::function<std::vector<Check>()>& look) {
  const auto report_of_child = [&]() -> Result<std::string> {
    TRY(become(user));
    Report report;
    report.sections = {{"store", "", look()}};
    return report.json();
  };
  TRY_ASSIGN(const std::string json, in_child(report_of_child, kChildLimit));
  TRY_ASSIGN(const Report report, parse_report(json));
  return report.sections.empty() ? std::vector<Check>() : report.sections.front().lines;
}

}  // namespace

std::string_view to_string(StoreMode mode) {
  return kModes.at(static_cast<size_t>(mode));
}

StoreMode store_mode(const SiteConfig& config, const MountedFrom& place) {
  if (config.distribute == Distribute::sbcast) return StoreMode::sbcast;
  if (place.kind == FileSystemKind::network) return StoreMode::shared;
  return config.distribute == Distribute::shared ? StoreMode::sbcast : StoreMode::node;
}

Check check_store_mode(const SiteConfig& config, const MountedFrom& place) {
  const StoreMode mode = store_mode(config, place);
  const std::string_view meaning = mode == StoreMode::shared ? "several nodes have this one"
                                   : mode == StoreMode::node ? "each node imports for itself"
                                                             : "one node imports, and sbcast takes it to the others";
  Check check{"store-mode", State::ok, "", ""};
  check.found = std::string(to_string(mode)) + ": " + config.store_path;
  if (!place.type.empty()) check.found += " on " + place.type;
  if (mode == StoreMode::shared && !place.source.empty()) check.found += " (" + place.source + ")";
  check.found += "; " + std::string(meaning);
  check.facts = {{"mode", std::string(to_string(mode))},
                 {"path", config.store_path},
                 {"fileSystem", place.type},
                 {"source", place.source}};
  if (mode == StoreMode::sbcast && config.distribute == Distribute::shared) {
    check.state = State::warn;
    check.found += ", because the file system is one of this node (distribute = \"shared\")";
    check.fix = "mount the store of all nodes there, or write distribute = \"sbcast\" in situla.toml";
  }
  if (mode != StoreMode::sbcast || place.kind != FileSystemKind::network) return check;
  check.state = State::warn;
  check.found += ", who have it already: the file system is one of several nodes";
  check.fix = "take distribute out of situla.toml, or set store_path to a local disk of each node";
  return check;
}

Result<StoreTrial> try_store(const std::string& directory) {
  const std::string path = directory + "/" + random_name(".doctor-");
  TRY_ASSIGN(const UniqueFd file, open_file(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  const ScopeExit remove([&] { unlink(path.c_str()); });
  TRY(write_all(file.get(), "situla doctor\n"));
  if (fsync(file.get()) != 0) return fail_errno(errno, "write " + path);
  StoreTrial trial;
  // Without a time of ours the server takes its own.
  struct stat status {};
  const milliseconds before = now_since_epoch();
  if (futimens(file.get(), nullptr) != 0 || fstat(file.get(), &status) != 0)
    return fail_errno(errno, "set the time of " + path);
  const milliseconds after = now_since_epoch(), made = since_epoch(status.st_mtim);
  if (made < before) trial.ahead = made - before;
  if (made > after) trial.ahead = made - after;
  if (fcntl(file.get(), F_SETLEASE, F_WRLCK) != 0) trial.lease_errnum = errno;
  return trial;
}

Result<std::string> store_id(const std::string& directory) {
  const std::string path = directory + "/id";
  if (auto known = read_id(path)) return *known;
  const std::string temporary = directory + "/" + random_name(".id-");
  const std::string id = (random_name("") + random_name("")).substr(0, kIdDigits);
  TRY(write_file_atomically(temporary, id + "\n", 0600));
  const ScopeExit remove([&] { unlink(temporary.c_str()); });
  if (link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) return fail_errno(errno, "create " + path);
  for (milliseconds waited{0}; waited < kVisible; waited += kPoll) {
    if (auto known = read_id(path)) return *known;
    std::this_thread::sleep_for(kPoll);
  }
  return fail(Error(ErrorKind::corrupt, path + " holds no " + std::to_string(kIdDigits) + " hexadecimal digits")
                  .with_code(ErrorCode::installation)
                  .with_hint("rm " + shell_quote(path)));
}

Check check_store_access(const SiteConfig& config, const Result<StoreTrial>& trial, bool root_refused) {
  constexpr const char* kName = "store-access";
  const std::string path = shell_quote(config.store_path);
  if (!trial)
    return check_of(kName, State::fail, trial.error(),
                    "give it to the account, which has to have one uid on all nodes: chown " + config.service_user +
                        ": " + path + " && chmod 700 " + path + " where root has rights to it");
  Check check{kName, State::ok, config.service_user + " can write there", ""};
  if (root_refused) check.found += "; root has no rights (root_squash), and needs none";
  const Result<std::string> id = store_id(config.store_path);
  if (!id) return check_of(kName, State::warn, id.error(), "look at " + config.store_path + "/id");
  check.facts = {{"id", *id}};
  return check;
}

Check check_store_leases(const MountedFrom& place, int lease_errnum) {
  constexpr const char* kName = "store-leases";
  if (lease_errnum == 0 && leases_reach_all_nodes(place))
    return {kName, State::ok, "the file system tells who has an image open, on any node", ""};
  const std::string why =
      lease_errnum == 0 ? "it knows of this node alone" : Error::from_errno(lease_errnum, "lease").message();
  return {kName, State::info,
          "the file system cannot tell who has an image open (" + why + "): images are never removed by themselves",
          "'situla rm --force' removes one, when no job uses it on any node"};
}

Check check_store_clock(milliseconds ahead) {
  constexpr const char* kName = "store-clock";
  const milliseconds off = std::chrono::abs(ahead);
  if (off <= kClocksAgree) return {kName, State::ok, "this node's clock agrees with the file server's", ""};
  const std::string offset = seconds_text(off);
  return {kName,
          State::warn,
          "this node's clock is " + offset + (ahead.count() > 0 ? " behind" : " ahead of") + " the file server's",
          "synchronise both with one time source: `chronyc tracking` or `timedatectl` says what each follows",
          {{"offset", offset}}};
}

Section store_section(const SiteConfig& config, const SlurmFiles& files, const Environment& environment) {
  Section section{"store", "how nodes come by images", {}};
  const Result<Identity> owner = identity_of_user(config.service_user);
  if (!owner) {
    section.lines = {{"store-mode", State::info, "none: each user has a store of his own", "", {{"mode", "none"}}}};
    return section;
  }
  const bool is_root = geteuid() == 0;
  if (is_root || geteuid() == owner->uid) {
    const bool refused = is_root && access(config.store_path.c_str(), R_OK | W_OK | X_OK) != 0 && errno == EACCES;
    const auto look = [&] { return checks_of_owner(config, environment, refused); };
    const auto found = is_root ? checks_as(*owner, look) : Result<std::vector<Check>>(look());
    section.lines = found ? *found
                          : std::vector<Check>{check_of("store-mode", State::fail, found.error(),
                                                        "look at " + config.store_path + " as " + config.service_user)};
  } else {
    section.lines = {check_store_mode(config, mounted_from(config.store_path))};
  }
  if (!config.local_tier.empty())
    section.lines.push_back(check_local_tier(config, owner->uid, mounted_from(config.local_tier),
                                             share_file_system(config.local_tier, config.store_path)));
  if (config.distribute == Distribute::registry) return section;
  section.lines.push_back(check_sbcast(files, environment));
  section.lines.push_back(check_incoming(config.store_path + "-incoming"));
  return section;
}

}  // namespace situla::doctor
