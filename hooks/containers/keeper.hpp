// Who mounts a layered container's changes when several programs run in it at the same time? One process per container
// and node, the keeper, for all of them.
#pragma once

#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/containers/request.hpp"

namespace situla {

/// The root of a layered container with its changes, writable; whoever asks gets the same file system, so all see each
/// other's changes. To be attached in the caller's mount namespace. The first to ask starts the keeper, a process that
/// belongs to nobody's job control: it lives until every process that asked, the broker of every step that asked, and
/// every process that still has the file system in its mount namespace, has ended. Two mounts of one upper layer would
/// damage it, so there is a lock: when nobody lets go of it within 30 seconds, "Could not acquire rootfs lock". For a
/// single-threaded process with mounting rights.
///
/// The keeper has the limits of the job that began it: a process of the user's outside of all jobs would be a way
/// around them. One in the cgroups of a step, which `start` in a step makes, ends with that step; whoever else has the
/// file system then gets ENOTCONN for files of the image, and a warning says so in advance to those who join from
/// elsewhere; not where the kernel has the image mounted.
Result<DetachedMount> join_layers(const NamedContainer& container, const ContainerRequest& request, LogSink& log);

/// For the builder of a step that may join what runs in the container: if there is a keeper, it lives until this
/// process's broker has ended, even when there is no process in the container for a moment.
void keep_layers_for_broker(const NamedContainer& container);

}  // namespace situla
