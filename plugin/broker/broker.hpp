// What happens between the first request of a task and the last sign of its container? One small state machine, as
// root.
#pragma once

#include <list>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "plugin/broker/clients.hpp"
#include "plugin/broker/courier.hpp"
#include "plugin/broker/phases.hpp"
#include "plugin/broker/recorder.hpp"
#include "plugin/broker/report/step_report.hpp"
#include "plugin/broker/slurm_proxy.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

/// The descriptors that slurmstepd gave (contract.hpp).
struct BrokerInput {
  UniqueFd control, listener, environment;
  StepRequest request;
};

/// Single-threaded; owns the helpers, the image and the namespaces. Everything in it is freed by its end, however it
/// ends.
class Broker {
 public:
  explicit Broker(BrokerInput input);
  /// Returns when slurmstepd asked to finish, or is gone, and nothing is left of the container.
  void run();

 private:
  // broker.cpp: what comes from outside, and the end
  Result<void> start(StepRequest request, UniqueFd environment);
  void poll_once();
  void watch_phase(PollSet& set);
  [[nodiscard]] std::optional<Deadline> deadline() const;
  void on_control();
  void on_asked(Client& client);
  void on_other_step(phase::Ready& ready);
  void on_task_ended(UniqueFd& connection);
  void on_task_gone();
  void on_deadline();
  void begin_time_anew();
  Result<void> step_prepared();
  void grant(Client& client);
  void refuse(Client& client);
  Result<void> save(int task);
  void finish(bool orderly);
  void let_nobody_in();
  void fail_step(const Error& error);
  void take_down(Phase phase, bool orderly);
  void end_processes(const phase::Ready& ready) const;

  // broker_build.cpp: from the image to the container
  void begin_if_possible();
  Result<void> begin_import();
  Result<void> import_without_store(const std::string& why);
  Result<void> write_request(phase::Importing& importing);
  void on_imported(Result<std::optional<Imported>> imported);
  void import_failed(const Error& error);
  Result<void> use_image(Imported imported);
  Result<void> use_other_image(const Imported& imported);
  void build_on(phase::Importing& importing);
  void let_end(ImageImport import);
  Result<void> begin_build(const Client& client, std::optional<StepImage> imported);
  Builder& builder();
  void on_builder();
  Result<void> on_builder_message(const Message& message);
  Result<void> fetch_other(Build& build, const OtherImageWanted& wanted);
  Result<void> mount_copied(Build& build, const CopiedImageWanted& wanted);
  Result<void> write_maps(Build& build, const MapsWanted& wanted);
  Result<void> join_running(Build& build, const RunningWanted& wanted);
  Result<void> join_found(Build& build, const Found& found);
  Result<void> use_running(Build& build, StepContainer container);
  Result<void> accept_container(Build& build, const Ready& message);
  void publish(phase::Ready& ready, const RunningKey& key, UniqueFd directory) const;
  void set_ready(Build& build, phase::Ready ready);

  template <typename P>
  void enter(P phase) {
    phase_.emplace<P>(std::move(phase));
    changed_ = true;
  }

  UniqueFd control_;
  std::string name_;  ///< "job 123 step 0"
  Clients clients_;
  std::optional<Step> step_;  ///< none: it has failed before it began
  Phase phase_;
  StepReport report_;
  std::optional<Courier> courier_;  ///< of a step whose nodes share what one of them imports
  Recorder recorder_;
  std::optional<SlurmProxy> slurm_;        ///< for commands of Slurm in the container
  std::optional<TaskPlace> place_;         ///< of the first task that asked
  std::list<ImageImport> ending_imports_;  ///< have given their images
  bool release_owed_ = false;              ///< since the cluster's program was asked for the image
  bool changed_ = false;                   ///< what was polled for may be gone
  bool done_ = false;
};

}  // namespace situla
