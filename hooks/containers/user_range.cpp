#include "hooks/containers/user_range.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <tuple>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/scope_exit.hpp"
#include "common/base/text.hpp"
#include "common/base/wire.hpp"
#include "common/sys/fd_path.hpp"
#include "common/sys/file.hpp"
#include "common/sys/file_systems.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/mount/namespaces.hpp"
#include "common/sys/process/run_program.hpp"
#include "common/sys/socket.hpp"
#include "hooks/containers/own_ids.hpp"
#include "hooks/mount/image_mount.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kMostTime{5};
constexpr size_t kMostBytes = 64;
constexpr size_t kMostError = 8192;
constexpr WireForm kRemovalFailure{"error of a child that removes files", 0x53520001, kMostError, kMostError / 4};

std::string text_of(const IdRange& range) {
  return std::to_string(range.first_uid) + " " + std::to_string(range.first_gid) + "\n";
}

std::optional<IdRange> parse_range(std::string_view text) {
  const auto words = split_words(text);
  if (words.size() != 2) return std::nullopt;
  const auto uid = parse_unsigned(words[0]), gid = parse_unsigned(words[1]);
  if (!uid || !gid || *uid > UINT32_MAX || *gid > UINT32_MAX) return std::nullopt;
  return IdRange{static_cast<uint32_t>(*uid), static_cast<uint32_t>(*gid)};
}

/// For people.
std::string shown(const IdRange& range) {
  return std::to_string(range.first_uid) + " (uids) and " + std::to_string(range.first_gid) + " (gids)";
}

Result<UniqueFd> open_container(const RootSource& source) {
  if (source.held) return duplicate_fd(source.held->get(), "the container");
  return open_file(source.path, O_PATH | O_DIRECTORY);
}

bool is_named(const RootSource& source) {
  return source.kind == RootSource::Kind::layered || source.kind == RootSource::Kind::directory;
}

bool will_extract(const ContainerRequest& request) {
  if (request.root.kind != RootSource::Kind::image) return false;
  return request.root.mount == MountKind::extract || (request.root.mount == MountKind::automatic && !fuse_available());
}

/// newgidmap(1) refuses all if one of the groups may not be mapped.
Identity identity_for_helpers(const std::vector<gid_t>& allowed) {
  const gid_t gid = getegid();
  Identity user{geteuid(), gid, {}};
  const std::vector<gid_t> groups = supplementary_groups();
  if (std::find(groups.begin(), groups.end(), gid) == groups.end()) return user;
  user.groups = allowed;
  user.groups.push_back(gid);
  return user;
}

Error cannot_have(const Error& why, const std::optional<IdRange>& exactly) {
  const std::string what = exactly ? "have the range of ids from " + shown(*exactly) : "have a range of ids";
  return Error(ErrorKind::denied, what + ": " + why.message())
      .with_code(ErrorCode::namespaces)
      .with_hint(
          "outside of Slurm's steps newuidmap(1) has to give it to you, by the same lines of /etc/subuid and "
          "/etc/subgid on every node; a step (srun --container-name) may have it by id_ranges of situla.toml");
}

/// Which range a container has whose own word of it cannot be read: programs in it have given that away (chown -R app
/// /), or the directory above. By whom they gave it to; none if the user has taken his own rights away, which a start
/// does without.
Result<ContainerRange> range_by_owner(int directory_fd, const Error& unreadable) {
  struct stat status {};
  // Beneath a directory that only its new owner may search, it alone can be asked.
  if (fstatat(directory_fd, std::string(kRangeFile).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 &&
      fstatat(directory_fd, "", &status, AT_EMPTY_PATH) != 0)
    return fail(unreadable);
  if (status.st_uid == geteuid()) return ContainerRange{};
  const auto range = own_range_with(status.st_uid);
  return range ? ContainerRange{range, false} : Result<ContainerRange>(fail(unreadable));
}

/// Of a container, and of the user namespace that we are in.
Result<void> check_same(const IdRange& kept) {
  const auto own = own_id_range();
  if (own == kept) return {};
  const std::string what = "the container has files of ids from " + shown(kept) + ", and here you ";
  return fail(
      Error(ErrorKind::denied, what + (own ? "have those from " + shown(*own) : "have none but your own"))
          .with_code(ErrorCode::namespaces)
          .with_hint("a container keeps the range that it began with: /etc/subuid and /etc/subgid, or id_ranges "
                     "of situla.toml, have to be the same on all nodes that see it"));
}

}  // namespace

Result<ContainerRange> range_of_container(int directory_fd) {
  const auto file = open_file_at(directory_fd, std::string(kRangeFile), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file && file.error().errnum() == ENOENT) return ContainerRange{};
  if (!file && file.error().errnum() == EACCES) return range_by_owner(directory_fd, file.error());
  if (!file) return fail(file.error());
  TRY_ASSIGN(const std::string text, read_all(file->get(), kMostBytes));
  if (text.empty()) return ContainerRange{std::nullopt, true};
  const auto range = parse_range(text);
  if (!range) return fail(ErrorKind::corrupt, "read " + std::string(kRangeFile) + " of the container: not a range");
  return ContainerRange{range, false};
}

Result<void> write_range(int directory_fd, const std::optional<IdRange>& range) {
  // Of an image that was made of a container by other means than `export`.
  TRY(remove_tree_at(directory_fd, std::string(kRangeFile)));
  TRY_ASSIGN(const UniqueFd file,
             open_file_at(directory_fd, std::string(kRangeFile), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
  return write_all(file.get(), range ? text_of(*range) : "");
}

/// A root who cannot chown there is better off with a filter that pretends it.
bool takes_owners(const std::string& directory) {
  return mounted_from(directory).kind != FileSystemKind::network;
}

bool wants_range(const Environment& host) {
  return parse_boolean(host.get_or("SITULA_ID_RANGE", "")).value_or(true);
}

Result<RangeWish> range_wish(const ContainerRequest& request) {
  if (request.real_root() || request.uid == 0) return RangeWish{};
  // The user's own choice, and the site's, as long as no container has files of it.
  const bool may_be = request.remap_root && !request.id_ranges.off() && wants_range(request.host);
  if (is_named(request.root)) {
    TRY_ASSIGN(const UniqueFd directory, open_container(request.root));
    TRY_ASSIGN(const ContainerRange kept, range_of_container(directory.get()));
    if (kept.range) return RangeWish{true, kept.range};
    const bool tree = request.root.kind == RootSource::Kind::directory;
    return RangeWish{may_be && kept.undecided && (!tree || takes_owners(fd_path(directory.get()))), {}};
  }
  const std::string place = request.for_step() ? request.config.data_path() : request.config.temp_path();
  return RangeWish{may_be && (!will_extract(request) || takes_owners(place)), {}};
}

Result<void> check_range(const ContainerRequest& request) {
  return request.range.exactly ? check_same(*request.range.exactly) : Result<void>();
}

Result<void> keep_range(const ContainerRequest& request, const std::string& root_path) {
  if (!request.writable || !is_named(request.root)) return {};
  TRY_ASSIGN(const UniqueFd directory, open_container(request.root));
  TRY_ASSIGN(const ContainerRange kept, range_of_container(directory.get()));
  if (kept.range) return check_same(*kept.range);
  const auto own = request.range.wanted ? own_id_range() : std::nullopt;
  if (!own) {
    // Root begins it without: what he gives to others stays his from now on.
    if (kept.undecided && request.remap_root) (void)unlinkat(directory.get(), std::string(kRangeFile).c_str(), 0);
    return {};
  }
  if (!kept.undecided)
    return fail(Error(ErrorKind::denied, "begin the container with a range of ids: it was begun without one meanwhile")
                    .with_code(ErrorCode::namespaces)
                    .with_hint("start it again"));
  TRY_ASSIGN(const UniqueFd file, make_nameless_file(root_path));
  const NamespaceIds ids = NamespaceIds::own();
  // An overlay that somebody has mounted without the range does the first for root, and then nothing more.
  const bool given = fchown(file.get(), ids.inside_uid(IdRange::kCount), ids.inside_gid(IdRange::kCount)) == 0 &&
                     fchmod(file.get(), 0640) == 0;
  if (!given)
    return fail(
        Error::from_errno(errno, "give a file of the container to another user")
            .with_code(ErrorCode::namespaces)
            .with_hint("programs that were started in it without --container-remap-root (--root) have it mounted: "
                       "end them first; or its file system does not allow it"));
  return write_file_atomically(fd_path(directory.get()) + "/" + std::string(kRangeFile), text_of(*own), 0644);
}

Result<MapHelper> MapHelper::begin(const std::string& program, std::string_view rows) {
  SpawnOptions helper;
  helper.program = find_program(program, "/usr/bin:/bin:/usr/sbin");
  if (helper.program.empty())
    return fail(ErrorKind::not_found, program + " (package uidmap or shadow-utils) is not here");
  // Its number there is another one where /proc is not of this process's PID namespace (the broker's cleaners).
  std::error_code error;
  helper.arguments = {program, std::filesystem::read_symlink("/proc/self", error).string()};
  if (error) return fail(Error::from_errno(error.value(), "read /proc/self"));
  for (const std::string_view word : split_words(rows)) helper.arguments.emplace_back(word);
  TRY_ASSIGN(auto pipe, make_pipe());
  auto& [reader, writer] = pipe;
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    writer.reset();
    char byte = 0;
    if (die_with_parent() && read(reader.get(), &byte, 1) == 1) (void)execute(helper);
    _exit(127);
  }
  return MapHelper(program, std::move(child), std::move(writer));
}

Result<void> MapHelper::map() {
  TRY(write_all(go_.get(), "g"));
  TRY_ASSIGN(const auto ended, child_.wait_for(kMostTime));
  if (ended && ended->success()) return {};
  return fail(ErrorKind::denied, program_ + " " + (ended ? ended->text() : std::string("does not end")));
}

Result<RangeHelpers> RangeHelpers::begin(const IdRangeRule& rule, const std::optional<IdRange>& exactly,
                                         const std::function<IdMaps(const IdRange&)>& maps_of) {
  const auto helpers = [&]() -> Result<RangeHelpers> {
    // What only situla.toml gives, newuidmap(1) refuses.
    TRY_ASSIGN(const IdRange range, find_own_range({rule.files, {}}));
    if (exactly && range != *exactly)
      return fail(ErrorKind::denied, "/etc/subuid and /etc/subgid give you that from " + shown(range));
    const IdMaps maps = maps_of(range);
    TRY_ASSIGN(MapHelper uids, MapHelper::begin("newuidmap", maps.uids));
    TRY_ASSIGN(MapHelper gids, MapHelper::begin("newgidmap", maps.groups.text));
    return RangeHelpers(std::move(uids), std::move(gids));
  };
  auto begun = helpers();
  if (!begun) return fail(cannot_have(begun.error(), exactly));
  return begun;
}

Result<RangeHelpers> RangeHelpers::begin(bool as_root, const std::optional<IdRange>& exactly) {
  return begin({}, exactly, [&](const IdRange& range) {
    return map_range(identity_for_helpers({}), as_root, range, Nobody::unmapped);
  });
}

Result<RangeHelpers> RangeHelpers::begin_container(const ContainerRequest& request,
                                                   const std::function<std::vector<gid_t>()>& groups) {
  return begin(request.id_ranges, request.range.exactly, [&](const IdRange& range) {
    return map_range(identity_for_helpers(groups()), request.remap_root, range);
  });
}

Result<void> RangeHelpers::map() {
  TRY(gids_.map());
  return uids_.map();
}

Result<void> in_own_range(const std::function<Result<void>()>& body, const std::optional<IdRange>& exactly) {
  TRY_ASSIGN(auto sockets, socket_pair());
  TRY_ASSIGN(Child child, fork_child());
  if (!child) {
    sockets.first.reset();
    const auto run = [&]() -> Result<void> {
      TRY(die_with_parent());
      TRY_ASSIGN(RangeHelpers helpers, RangeHelpers::begin(true, exactly));
      TRY(unshare_namespaces(kUserNs));
      if (const auto mapped = helpers.map(); !mapped) return fail(cannot_have(mapped.error(), exactly));
      return body();
    };
    const auto done = run();
    if (!done) (void)send_packet(sockets.second.get(), to_wire(SentError::of(done.error()), kRemovalFailure));
    _exit(done ? 0 : 1);
  }
  sockets.second.reset();
  TRY_ASSIGN(const auto answer, receive_packet(sockets.first.get(), kMostError));
  TRY_ASSIGN(const ExitStatus status, child.wait());
  if (status.success()) return {};
  if (!answer) return fail(ErrorKind::failure, "the child " + status.text());
  TRY_ASSIGN(const SentError sent, from_wire<SentError>(answer->bytes, kRemovalFailure));
  return fail(sent.error());
}

Result<void> take_back(int directory_fd, const std::string& name, const std::optional<IdRange>& range) {
  struct stat status {};
  if (fstatat(directory_fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_uid == geteuid()) return {};
  if (!range && !own_id_range()) return {};
  const auto take = [&]() -> Result<void> {
    if (fchownat(directory_fd, name.c_str(), geteuid(), getegid(), AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(errno, "take back " + name);
    return {};
  };
  return range ? in_own_range(take, range) : take();
}

Result<std::optional<IdRange>> range_to_remove(int directory_fd, const std::string& name) {
  constexpr std::optional<IdRange> kNone;
  // What else is wrong with it removing says.
  const auto directory = open_file_at(directory_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW);
  struct stat status {};
  // Its owner may have taken his own rights away.
  const bool opened = directory && fstat(directory->get(), &status) == 0 && status.st_uid == geteuid() &&
                      (status.st_mode & 0700U) != 0700U && fchmodat(directory_fd, name.c_str(), 0700, 0) == 0;
  const ScopeExit as_before([&] {
    if (opened) std::ignore = fchmodat(directory_fd, name.c_str(), status.st_mode & 07777U, 0);
  });
  const auto kept = directory ? range_of_container(directory->get()) : fail(directory.error());
  if (!kept || !kept->range || own_id_range() == kept->range) return kNone;
  const auto had = in_own_range([] { return Result<void>(); }, kept->range);
  if (had) return kept->range;
  // Nobody but him need ever have written there.
  if (owns_directories(directory_fd, name)) return kNone;
  return fail(
      Error(ErrorKind::denied, had.error().message())
          .with_code(ErrorCode::namespaces)
          .with_hint("newuidmap(1) has to give it to you here, by the same lines of /etc/subuid and /etc/subgid "
                     "on every node; a step with --container-remap-root that mounts the directory above may "
                     "have it by id_ranges of situla.toml, and can remove these files"));
}

Result<void> remove_whole_tree_at(int directory_fd, const std::string& name, const std::optional<IdRange>& range) {
  const auto remove = [&] { return remove_tree_at(directory_fd, name); };
  if (range) return in_own_range(remove, range);
  auto removed = remove();
  const int errnum = removed ? 0 : removed.error().errnum();
  // Most who are refused here have no range, which is not why.
  if ((errnum == EACCES || errnum == EPERM) && in_own_range(remove)) return {};
  return removed;
}

}  // namespace situla
