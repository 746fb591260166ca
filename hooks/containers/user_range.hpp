// Which containers have files of others than the user, and how does a process of his become root over all of them
// without a root of the node?
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/sys/mount/subordinate_ids.hpp"
#include "common/sys/process/process.hpp"
#include "hooks/containers/request.hpp"

namespace situla {

/// Left out of exports.
constexpr std::string_view kRangeFile = ".situla-range";

/// Of which range a container's files are, for ever. It is kept in its directory, in a file of the user's: what he
/// writes there decides only which range is asked for, and he gets no other than his own.
struct ContainerRange {
  std::optional<IdRange> range;
  bool undecided = false;  ///< nobody has been root in it yet who could write: the first one decides
};
/// Neither, where there is no such file: of a container that was made by enroot, by hand or by an older release, or
/// that its user may not search. One whose file cannot be read, because programs in it have given it to an id of the
/// user's range, has that range.
Result<ContainerRange> range_of_container(int directory_fd);
/// For a directory that is being made. nullopt: undecided.
Result<void> write_range(int directory_fd, const std::optional<IdRange>& range);
/// Whether files in a directory can be given to others of a range: other machines' disks refuse that (NFS, Lustre).
bool takes_owners(const std::string& directory);
/// Whether the user wants a range where he can have one: SITULA_ID_RANGE of his environment.
bool wants_range(const Environment& host);

/// Which range the container of a request wants: that of a named one which has one, and any where the user is to be
/// root and nothing is against it.
Result<RangeWish> range_wish(const ContainerRequest& request);
/// In the container's user namespace: whether the wish is granted. Fails when a container has files of another range
/// than this one.
Result<void> check_range(const ContainerRequest& request);
/// In it, with the root mounted and writable for root: a container that was undecided has this range from now on, or
/// none for ever. Fails when files cannot be given to others there, and when somebody has begun it without meanwhile.
Result<void> keep_range(const ContainerRequest& request, const std::string& root_path);

/// newuidmap(1) or newgidmap(1), waiting in the user's own namespace for the process that leaves it.
class MapHelper {
 public:
  /// The caller is in no user namespace of its own yet, and has a single thread. rows: a map's text. not_found: there
  /// is no such program.
  static Result<MapHelper> begin(const std::string& program, std::string_view rows);
  /// The caller has unshared its user namespace. Once. ErrorKind::denied: nothing is written.
  Result<void> map();

 private:
  MapHelper(std::string program, Child child, UniqueFd go)
      : program_(std::move(program)), child_(std::move(child)), go_(std::move(go)) {}
  std::string program_;
  Child child_;
  UniqueFd go_;
};

/// Both, for a range of /etc/subuid and /etc/subgid.
class RangeHelpers {
 public:
  /// As MapHelper::begin(), for who looks at files of anybody, whatever the site says of containers: those that are
  /// there can be saved and removed in any case. exactly: only this one. Fails where it cannot be had.
  static Result<RangeHelpers> begin(bool as_root, const std::optional<IdRange>& exactly = std::nullopt);
  /// The same for a container that starts. groups: says, where there is a range, which the user may map besides his own
  /// (subgid(5)).
  static Result<RangeHelpers> begin_container(const ContainerRequest& request,
                                              const std::function<std::vector<gid_t>()>& groups);
  /// As MapHelper::map(), gids first: where they fail, nothing is written, and where only the uids do, a single one
  /// still can be.
  Result<void> map();

 private:
  static Result<RangeHelpers> begin(const IdRangeRule& rule, const std::optional<IdRange>& exactly,
                                    const std::function<IdMaps(const IdRange&)>& maps_of);
  RangeHelpers(MapHelper uids, MapHelper gids) : uids_(std::move(uids)), gids_(std::move(gids)) {}
  MapHelper uids_, gids_;
};

/// Runs `body` in a child that is root of the calling user's range; exactly: only of this one. For a single-threaded
/// process. Fails as the body does, or, with how to have it, where there is no range.
Result<void> in_own_range(const std::function<Result<void>()>& body,
                          const std::optional<IdRange>& exactly = std::nullopt);

/// In which range of the user's, by in_own_range(), a container has to be removed; it can be had. nullopt: as this
/// process is, because no range is recorded, because it has that, or because only the user has written there. Fails
/// where it cannot be had; what would be removed without it would leave less than a container. Nothing is changed. For
/// a single-threaded process.
Result<std::optional<IdRange>> range_to_remove(int directory_fd, const std::string& name);
/// Makes a directory, which the user as root of a container has given to others, his own again. range: of
/// range_to_remove(); nothing happens where there is none, and this process has none either.
Result<void> take_back(int directory_fd, const std::string& name, const std::optional<IdRange>& range);
/// Removes a tree like remove_tree_at(), and what others of the user's range own in it. range: of range_to_remove();
/// without one it is what turns out to be needed. For a single-threaded process.
Result<void> remove_whole_tree_at(int directory_fd, const std::string& name,
                                  const std::optional<IdRange>& range = std::nullopt);

}  // namespace situla
