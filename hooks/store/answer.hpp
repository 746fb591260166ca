// What does the store do for a process of a user that no job's broker stands behind? It copies images that the user may
// have, and shows and removes what is his.
#pragma once

#include "common/base/result.hpp"
#include "common/spec/site_config.hpp"

namespace situla {

/// Answers the one question that comes out of the socket, an accepted connection (store_socket messages). Who asks is
/// what the kernel says (SO_PEERCRED), and what he may have is what grants say: `grant_lifetime`, or `grant_offline`
/// for him whose registry does not answer; no registry is asked here. Nobody has more than `imports_per_user` answers
/// at a time. An error is for the log, and the user is told.
///
/// A user never gets the image's own file, which he could keep open for as long as he likes and so keep in the store: a
/// file of his on the store's file system is written here, sharing blocks where that can; any other gets its bytes
/// through a pipe, and nothing that he serves himself (FUSE) is waited for.
Result<void> answer_user(const SiteConfig& config, int socket);

}  // namespace situla
