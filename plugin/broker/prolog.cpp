#include "plugin/broker/prolog.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <syslog.h>
#include <unistd.h>

#include "common/protocol/contract.hpp"
#include "plugin/broker/clients.hpp"
#include "plugin/broker/courier.hpp"
#include "plugin/broker/events/heard.hpp"
#include "plugin/broker/events/poll_set.hpp"
#include "plugin/broker/image_import.hpp"
#include "plugin/broker/operation.hpp"
#include "plugin/broker/report/step_report.hpp"
#include "plugin/broker/step.hpp"

namespace situla {
namespace {

using Clock = std::chrono::steady_clock;

/// For a few files of the user's. He may trace that process before it is closed to him, and it lives in no job of his.
constexpr std::chrono::seconds kRequestLimit{30};

class JobImport {
 public:
  JobImport(Step step, int epilog) : step_(std::move(step)), epilog_(epilog) {}

  /// An error when there is no image in the end.
  Result<void> run() {
    TRY(step_.find_service());
    if (!step_.service) return {};                // each user has a store of his own: his steps see to it
    if (goes_by_sbcast(step_.config)) return {};  // one node of a step imports for the others
    report_.begin(StepPhase::import);
    auto import = ImageImport::into_store(step_, UniqueFd());
    if (!import) return fail(std::move(import).error().with_context(phrase(RootOperation::start_importer)));
    import_.emplace(std::move(*import));
    auto done = work();
    if (import_) import_->end(step_);
    if (!done) report_.failed(done.error());
    // Of an image that was there the steps have all that there is to say.
    if (has_waited_) report_.keep_at_end();
    return done;
  }

 private:
  Result<void> work() {
    TRY_CONTEXT(phrase(RootOperation::start_as_user), import_->write_request(step_));
    const auto begin = Clock::now();
    const auto deadline = begin + step_.config.import_timeout, written = begin + kRequestLimit;
    while (import_ && !ended_ && !failed_) {
      PollSet set;
      changed_ = false;
      set.add(epilog_, [this] { ended_ = changed_ = true; });
      if (has_image_)
        watch_rest(set);
      else
        watch(set);
      TRY(set.wait(import_->has_request_writer() ? std::min(written, deadline) : deadline, changed_));
      if (has_waited_) report_.keep_now_and_then();
      if (import_ && import_->has_request_writer() && Clock::now() >= written) end_request_writer();
      if (Clock::now() >= deadline)
        failed_ = Error(ErrorKind::failure, "it takes longer than import_timeout").with_code(ErrorCode::time_limit);
    }
    return failed_ && !has_image_ ? fail(*failed_) : Result<void>();
  }

  void watch(PollSet& set) {
    // Before the importer: it would only say that its input ended.
    set.add(import_->request_writer(), [this] {
      if (const auto written = import_->on_request_writer(nobody_); !written) fail_with(written.error());
    });
    set.add(import_->importer(), [this] { on_imported(import_->on_importer(step_, nobody_)); });
    set.add(import_->store(), [this] { on_imported(import_->on_store(step_, nobody_)); });
  }

  /// Whoever goes on beside the image.
  void watch_rest(PollSet& set) {
    for (const int socket : {import_->request_writer(), import_->importer(), import_->store()})
      set.add(socket, [this, socket] { import_->ignore(step_, socket); });
    set.add(import_->ending(), [this] {
      if (!import_->on_ended(step_)) return;
      import_.reset();
      changed_ = true;
    });
  }

  void end_request_writer() {
    import_->end_request_writer();
    if (has_image_) return;
    fail_with(Error(ErrorKind::failure,
                    "collecting the credentials takes longer than " + std::to_string(kRequestLimit.count()) + " s")
                  .with_code(ErrorCode::time_limit));
  }

  void on_imported(Result<std::optional<Imported>> imported) {
    if (const auto news = import_->take_news()) {
      report_.heard(*news);
      has_waited_ = true;
    }
    if (!imported) return fail_with(imported.error());
    if (!*imported) {
      // The same as without the service account.
      if (import_->no_store()) ended_ = changed_ = true;
      return;
    }
    import_->image_taken();
    has_image_ = changed_ = true;
    report_.end();
    report_.digest = (*imported)->digest.text();
    report_.source = (*imported)->local ? "local" : (*imported)->stored ? "store" : "registry";
    report_.root = "none";
    syslog(LOG_INFO, "job %u prolog: image=%s %s", step_.request.job_id, step_.request.image.c_str(),
           report_.text().c_str());
  }

  void fail_with(Error error) {
    failed_ = std::move(error);
    changed_ = true;
  }

  Step step_;
  int epilog_;                                               ///< readable: end
  Clients nobody_{UniqueFd(), step_.user.uid, StepToken{}};  ///< who would read what helpers say
  StepReport report_{step_.request};
  std::optional<ImageImport> import_;  ///< none: all of it has ended
  std::optional<Error> failed_;
  bool has_image_ = false, ended_ = false;
  bool has_waited_ = false;  ///< for an import
  bool changed_ = false;     ///< what was polled for may be gone
};

}  // namespace

void import_before_steps(PrologInput input) {
  const uint32_t job = input.request.job_id;
  const auto log = [job](int level, const std::string& text) {
    syslog(level, "job %u prolog: %s", job, as_one_line(text).c_str());
  };
  auto step = Step::open_before_job(std::move(input.request), std::move(input.environment));
  if (step) {
    const NodeCgroups cgroups = step->launcher.cgroups;
    if (const auto done = JobImport(std::move(*step), input.epilog.get()).run(); !done)
      log(done.error().kind() == ErrorKind::no_space ? LOG_WARNING : LOG_INFO, done.error().message());
    cgroups.remove_idle_shares();
  } else if (!step.error().message().empty()) {
    log(LOG_NOTICE, step.error().message());
  }
  // Before the socket is closed, for whose end the epilog waits.
  (void)unlink(job_import_path(job).c_str());
}

}  // namespace situla
