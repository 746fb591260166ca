// How does the broker get an image? It starts those who fetch it, and listens to them until one hands it over.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "plugin/broker/clients.hpp"
#include "plugin/broker/launcher.hpp"
#include "plugin/broker/report/step_report.hpp"
#include "plugin/broker/step.hpp"

namespace situla {

struct Imported {
  Digest digest;           ///< of the manifest; none that we know of what a cluster's own program gets
  UniqueFd file;           ///< of the store; or a parcel of the user's, with the file in it
  std::string store_name;  ///< empty: it is the user's
  bool stored = false;     ///< the image was in the store already
  bool received = false;   ///< another node of the step has imported it
  bool local = false;      ///< `file` is this node's copy
};

/// COMPAT.md 1, "Messages that people grep": only for a single task. image: printable.
void say_importing(const StepRequest& step, const std::string& image, Clients& tasks);

/// Into the node's store: the process of the job user that writes the request (reference, credentials, proxies) into a
/// pipe which this side never reads; the store program, as the service user, which reads it and hands over the image;
/// and the importer, as a third account, which the store program tells what to fetch. Only the store program may say
/// which image was imported. An import as the user is an importer alone.
class ImageImport {
 public:
  /// The store program lives in Situla's own cgroup. In a job's prolog and first step, which ask the registry, the
  /// importer starts at once: before Slurm has made the step's cgroups in Situla's own, where it waits without having
  /// read a byte of anybody's. Later ones mostly need none; there it starts when the store program says so. courier: to
  /// the courier, if the step has one. other: the reference of an image that is mounted in the container, and opaque
  /// here; empty: the container's own.
  static Result<ImageImport> into_store(const Step& step, UniqueFd courier, std::string other = {});
  /// What only the job user may read, and everything where the node has no store, is imported as that user, in the
  /// asking task's place; the container's own by the cluster's program (hooks/importer/site_program.cpp) if there is
  /// one.
  static Result<ImageImport> as_user(const Step& step, const TaskPlace& place, std::string other = {});

  /// When the step's cgroups are there: the importer moves into them, and the user's process starts in them. Once.
  Result<void> write_request(const Step& step);

  /// Descriptors that are readable when there is something for on_request_writer(), on_importer() and on_store(); or
  /// -1.
  [[nodiscard]] int request_writer() const { return request_writer_.socket.get(); }
  [[nodiscard]] int importer() const { return importer_.socket.get(); }
  [[nodiscard]] int store() const { return store_.socket.get(); }
  /// What they say to the user goes to `tasks`. What is returned has been checked: RootOperation::accept_store_image.
  Result<void> on_request_writer(Clients& tasks);
  Result<std::optional<Imported>> on_importer(const Step& step, Clients& tasks);
  Result<std::optional<Imported>> on_store(const Step& step, Clients& tasks);

  /// What was said of how far it is, and not asked for yet.
  [[nodiscard]] std::optional<ImportNews> take_news() { return std::exchange(news_, std::nullopt); }
  /// What the store program has said of why it has none: nothing will come out of this.
  [[nodiscard]] const std::optional<std::string>& no_store() const { return no_store_; }

  /// Of an image that the container mounts.
  [[nodiscard]] bool is_other() const { return !other_.empty(); }
  /// Its image is taken. They are not listened to any more, but for one that goes on beside the step:
  /// ignore().
  void image_taken();
  /// The image is there. What request_writer(), importer() and store() still say is read and dropped, but that the
  /// store program wants an importer.
  void ignore(const Step& step, int socket);
  /// It is the user's, who may keep it from ending: whoever gives it a limit ends it.
  [[nodiscard]] bool has_request_writer() const { return static_cast<bool>(request_writer_.process); }
  void end_request_writer() { request_writer_ = Helper{}; }
  /// Afterwards: readable when one of them has ended; -1: none is there.
  [[nodiscard]] int ending() const;
  /// Nobody stays as a zombie while the step runs, and nobody is waited for who still runs. True: all have ended.
  bool on_ended(const Step& step);
  /// Who still runs ends by himself.
  void hang_up();
  /// Cancels what still runs: it unwinds by itself, or is killed and swept up after.
  void end(const Step& step);

 private:
  Result<void> start_importer(const Step& step, CgroupPlace place);
  Result<void> on_importer_wanted(const Step& step);

  /// For messages.
  [[nodiscard]] std::string image_name(const Step& step) const;

  Helper importer_, request_writer_, store_;
  std::string other_;  ///< as of into_store()
  bool as_user_ = false;
  uid_t service_ = 0;       ///< whom the store belongs to
  UniqueFd importer_line_;  ///< to the store program, until there is an importer
  UniqueFd request_;        ///< the store program's input, until there is who writes it
  bool stays_ = false;      ///< ImportDone::stays
  std::optional<std::string> no_store_{};
  std::optional<ImportNews> news_{};
  UniqueFd parcel_;  ///< where an importer that runs as the user puts the image
};

/// `PROGRAM release` of the cluster's own program, once for each step on the node. Ends when the program has, or is
/// ended; an error is the program's.
Result<void> release_site_image(const Step& step, const TaskPlace& place);

}  // namespace situla
