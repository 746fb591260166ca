#include "hooks/turn/turn.hpp"

#include "common/base/text.hpp"

namespace situla {
namespace {

/// "job 7.0 on node3, which has 12.3 MiB"
std::string printed_holder(const LeaseRecord& holder) {
  const std::string who = printable("job " + holder.job + " on " + holder.node);
  return holder.bytes == 0 ? who : who + ", which has " + format_size(holder.bytes);
}

}  // namespace

Result<ImportTurn> take_turn(const std::string& lease, const std::string& slots, const TurnTaker& who,
                             const Lease::Options& patience, LogSink& log, const TurnEvents& events) {
  ImportTurn turn;
  LeaseRecord self;
  self.uid = who.uid;
  self.job = who.job;
  const auto waiting = [&](const LeaseRecord& holder) {
    turn.waited = true;
    log.info("waiting for another import of the same image (" + printed_holder(holder) + ")");
    events.waiting("the import of " + printed_holder(holder));
  };
  TRY_ASSIGN(auto acquired, Lease::acquire(lease, self, patience, waiting, events.done, events.stops));
  if (acquired.overtook) log.info("the other import of the same image is slow: importing it here as well");
  if (acquired.lease) turn.lease.emplace(std::move(*acquired.lease));
  // Its last holder may have finished between our look and his leaving.
  if (events.done()) return turn;
  const std::string most = std::to_string(who.imports_per_user);
  const auto too_many = [&] {
    log.info("waiting: this user has " + most + " imports on this node already, and may have " + most +
             " (imports_per_user)");
    events.waiting("one of this user's " + most + " imports");
  };
  TRY_ASSIGN(auto slot, ImportSlot::acquire(slots, who.uid, who.job, who.imports_per_user, too_many, events.done));
  if (slot) turn.slot.emplace(std::move(*slot));
  return turn;
}

}  // namespace situla
