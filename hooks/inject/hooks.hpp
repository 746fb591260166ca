// Which hooks are built in? One function each, behaving as enroot's standard script of that name (COMPAT.md 6, last
// paragraph).
#pragma once

#include "hooks/inject/hook.hpp"

namespace situla {

/// 10-aptfix: apt in a remapped-root container must not try to become _apt.
Result<Proposal> aptfix_hook(const InjectContext& context);
/// 10-home: the user's home directory, on /root when remapped, if the user asked for it.
Result<Proposal> home_hook(const InjectContext& context);
/// 10-localtime: the host's time zone.
Result<Proposal> localtime_hook(const InjectContext& context);
/// 10-shadow: passwd and group entries for root, nobody and the user; a home directory from /etc/skel.
Result<Proposal> shadow_hook(const InjectContext& context);

}  // namespace situla
