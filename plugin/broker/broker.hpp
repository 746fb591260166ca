// What happens between the first request of a task and the last sign of its container? One small state machine, as
// root.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/socket.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/container.hpp"
#include "plugin/broker/heard.hpp"
#include "plugin/broker/image_mounts.hpp"
#include "plugin/broker/running.hpp"
#include "plugin/broker/step_report.hpp"

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
  /// `config` and `launcher` may be errors (situla.toml cannot be read; no cgroup of its own can be made): then every
  /// task is told so.
  Broker(BrokerInput input, Result<SiteConfig> config, Result<Launcher> launcher);
  /// Returns when slurmstepd asked to finish, or is gone, and nothing is left of the container.
  void run();

 private:
  enum class State { importing, needs_task, building, ready, failed };
  using Clock = std::chrono::steady_clock;

  /// One connection. waiting: it showed the token and has not been answered yet. Its packet lies in the socket, with
  /// the task's descriptors, which never become ours: a builder gets the socket.
  struct Client {
    UniqueFd socket;
    UniqueFd proc;   ///< /proc/<pid>
    UniqueFd pidfd;  ///< none on kernels without (< 5.3)
    std::string directory;
    Clock::time_point connected;
    bool waiting = false;
  };

  void start();
  void poll_once();
  void on_control();
  Result<void> step_prepared();
  void on_listener();
  void on_client(Client& client);
  void on_importer();
  void on_store();
  void on_request_writer();
  void on_builder();
  void on_running();
  void on_deadline();

  Result<void> begin_import();
  Result<void> begin_request();
  Result<void> begin_user_import();
  void announce_import();
  Result<void> use_imported(const ImportDone& done, std::vector<UniqueFd> fds);
  Result<void> take_image(UniqueFd file, const std::string& store_name);
  Result<BuilderImage> make_image(int file, const std::string& store_name);
  Result<BuilderImage> mount_for_user(int file, const std::string& store_name);
  Result<int> mapping_namespace();
  void build_if_possible();
  Result<void> begin_build(Client& client);
  void keep_environment() const;
  void keep_cgroups() const;
  void keep_scratch() const;
  Result<void> on_builder_message(const Message& message);
  Result<void> write_maps(const MapsWanted& wanted);
  Result<void> accept_container(const Ready& ready);
  Result<void> join_running(const RunningWanted& wanted);
  Result<void> join_found(const Found& found);
  Result<void> use_running(ContainerNamespaces container, std::string workdir, UniqueFd environment);
  Result<void> give_image();
  void publish(const RunningKey& key, UniqueFd directory);
  void set_ready();
  void grant(Client& client);
  void answer(Client& client, const Message& message, const std::vector<int>& fds = {});
  void fail_step(const Error& error);
  void refuse(Client& client);
  void note(const Note& heard);
  std::optional<Note> within_limit(const Note& note);
  void draw(const Draw& drawing);
  void say_that_it_goes_on();
  void drop_lost_clients();
  void set_deadline(std::chrono::seconds limit) { deadline_ = Clock::now() + limit; }
  void finish(bool orderly);
  void let_nobody_in();
  void on_stand_in(UniqueFd& stand_in);
  Result<void> save(int stand_in);
  void say_of_save(Note note, bool at_once);
  Result<void> run_saver(int stand_in);
  void end_builder(bool orderly);
  void hear_last_words();
  void end_processes();
  [[nodiscard]] int ending_importer() const;
  void on_import_ended();
  void end_import();
  void release_image();

  BrokerInput input_;
  SiteConfig config_;
  std::optional<Launcher> launcher_;  ///< none: the step has failed before it began
  UniqueFd slurmstepd_;               ///< its /proc directory
  Identity user_;
  UniqueFd spec_;

  State state_ = State::needs_task;
  bool done_ = false;
  bool asked_ = false;  ///< some task has shown the token
  std::optional<Clock::time_point> deadline_;
  Clock::time_point said_alive_{};
  std::vector<Client> clients_;
  std::vector<Note> notes_;          ///< for the first task that asks
  size_t said_ = 0;                  ///< bytes of notes of helpers
  std::optional<TaskPlace> place_;   ///< of the first task that asked
  uint32_t granted_ = 0;             ///< tasks that have got the container
  std::vector<UniqueFd> tasks_;      ///< their pidfds
  std::vector<UniqueFd> stand_ins_;  ///< with --container-save: connections of tasks that will say TaskEnded
  uint32_t ended_ = 0;               ///< tasks that have said it
  bool save_begun_ = false;
  std::vector<Note> save_notes_;  ///< of a save before Finish, for slurmstepd
  bool shared_ = false;           ///< other steps have joined the container
  std::optional<Error> error_;
  bool reported_ = false;

  std::optional<ImageMounts> mounts_;
  std::optional<ImageInUse> image_in_use_;
  std::optional<ImportHelpers> import_;
  std::optional<SiteProgram> release_;  ///< owed since the cluster's program was asked for the image
  UniqueFd mapping_;                    ///< user namespace that maps owner 0 of an image to the job's user; once made
  BuilderImage image_;
  std::optional<Helper> builder_;
  bool builder_stays_ = false;
  std::string scratch_path_;

  UniqueFd user_namespace_;  ///< of the container, from the moment the builder has made it
  std::optional<ContainerNamespaces> container_;
  UniqueFd container_environment_;  ///< for the tasks of this step
  UniqueFd shared_environment_;     ///< for tasks of other steps
  std::string workdir_;
  std::optional<RunningKey> container_key_;  ///< of a named container that may be found running
  UniqueFd container_directory_;             ///< of that container
  std::string ignored_if_running_;
  std::optional<RunningContainer> running_;  ///< other steps may join here
  UniqueFd saved_;                           ///< a parcel of the builder: what --container-save exports
  UniqueFd save_image_;                      ///< beneath it, if the image was mounted here
  StepReport report_;
};

}  // namespace situla
