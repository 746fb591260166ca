#include "plugin/broker/image_import.hpp"

#include <array>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/text.hpp"
#include "common/protocol/contract.hpp"
#include "common/sys/directory.hpp"
#include "common/sys/file.hpp"
#include "common/sys/process/cgroup.hpp"
#include "common/sys/socket.hpp"
#include "common/sys/users.hpp"
#include "plugin/broker/children.hpp"
#include "plugin/broker/operation.hpp"

namespace situla {
namespace {

constexpr std::chrono::seconds kReleaseLimit{5};
constexpr std::chrono::seconds kUnwindLimit{1};  // for a cancelled import to remove what it made
constexpr int kMaxComplaints = 256;              // messages

/// Where the cluster's program may put the user's files, as pyxis has it below its runtime_path. Only a directory made
/// here is given away.
Result<void> make_site_directory(const std::string& runtime, const Identity& user) {
  TRY(make_directories(runtime, 0755));
  TRY_ASSIGN(const UniqueFd parent, open_file(runtime, O_RDONLY | O_DIRECTORY));
  const std::string name = std::to_string(user.uid);
  if (mkdirat(parent.get(), name.c_str(), 0700) != 0)
    return errno == EEXIST ? Result<void>() : fail_errno(errno, "make directory " + runtime + "/" + name);
  TRY_ASSIGN(const UniqueFd made, open_file_at(parent.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat info {};
  if (fstat(made.get(), &info) != 0 || info.st_uid != geteuid())
    return fail(ErrorKind::denied, runtime + "/" + name + " was replaced while it was made");
  if (fchown(made.get(), user.uid, user.gid) != 0) return fail_errno(errno, "give away " + runtime + "/" + name);
  return {};
}

/// It names a directory below <runtime>/images.
bool is_store_name(const std::string& text) {
  return !text.empty() && text.size() < 200 && text.front() != '.' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

std::string site_runtime(const StepRequest& step) {
  return step.importer_runtime.empty() ? SITULA_RUNTIME_DIR "/importer" : step.importer_runtime;
}

/// Arguments of situla-importer.
std::vector<std::string> site_words(const char* operation, const StepRequest& step) {
  return {
      "site", operation, step.importer, site_runtime(step), std::to_string(step.job_id), std::to_string(step.step_id)};
}

/// Notes reach the user; a failure is an error.
Result<void> pass_on(const Message& message, Clients& tasks) {
  if (const auto* note = std::get_if<Note>(&message)) tasks.note(*note);
  if (const auto* failure = std::get_if<Failure>(&message)) return fail(error_of(*failure));
  return {};
}

std::optional<ImportNews> news_in(const Message& message) {
  if (const auto* waits = std::get_if<ImportWaits>(&message)) return *waits;
  if (const auto* progress = std::get_if<ImportProgress>(&message)) return *progress;
  if (const auto* begins = std::get_if<ImportBegins>(&message)) return *begins;
  return std::nullopt;
}

/// srun tells of all nodes of a step together.
void tell_others(const StepRequest& step, const ImportNews& news, Clients& tasks) {
  if (step.nodes < 2) return;
  if (const auto* waits = std::get_if<ImportWaits>(&news)) tasks.news(*waits);
  if (const auto* progress = std::get_if<ImportProgress>(&news)) tasks.news(*progress);
}

bool ends_itself(Helper& helper) {
  if (!helper.process) return false;
  const auto status = helper.process.wait_for(kUnwindLimit);
  return status && *status && (*status)->signal == 0;
}

}  // namespace

void say_importing(const StepRequest& step, const std::string& image, Clients& tasks) {
  if (step.all_tasks <= 1 || step.node == 0) tasks.note({LogLevel::info, "importing docker image: " + image});
}

std::string ImageImport::image_name(const Step& step) const {
  return other_.empty() ? step.request.image : printable(other_);
}

Result<ImageImport> ImageImport::into_store(const Step& step, UniqueFd courier, std::string other) {
  const SiteConfig& config = step.config;
  const Launcher& launcher = step.launcher;
  const Identity& service = step.service.value();
  TRY_ASSIGN(auto between, socket_pair());
  TRY_ASSIGN(auto pipe, make_pipe());
  ImageImport import;
  import.service_ = service.uid;
  import.request_ = std::move(pipe.second);
  import.importer_line_ = std::move(between.first);
  import.other_ = std::move(other);
  const bool is_first = step.request.step_id == 0 || step.before_job();
  if (is_first && import.other_.empty()) TRY(import.start_importer(step, launcher.cgroups.broker()));
  Launch store{Program::store,
               {"--store", config.store_path, "--uid", std::to_string(step.user.uid), "--job", step.name()},
               launcher.cgroups.broker(),
               service,
               Rights::service};
  store.fds = {{pipe.first.get(), store_fd::kRequest}, {between.second.get(), store_fd::kImporter}};
  if (courier) {
    store.fds.emplace_back(courier.get(), store_fd::kCourier);
    store.arguments.insert(store.arguments.end(), {"--node", std::to_string(step.request.node), "--nodes",
                                                   std::to_string(step.request.nodes)});
  }
  TRY_ASSIGN(import.store_, launcher.launch_helper(std::move(store), store_fd::kBroker));
  return import;
}

Result<void> ImageImport::start_importer(const Step& step, CgroupPlace place) {
  const SiteConfig& config = step.config;
  auto import_user = identity_of_user(config.import_user);
  if (!import_user)
    return fail(Error(import_user.error())
                    .with_code(ErrorCode::installation)
                    .with_hint("useradd --system --shell /usr/sbin/nologin " + config.import_user +
                               ", or name another account of its own: import_user in " SITULA_SYSCONF_DIR
                               "/situla.toml"));
  if (import_user->uid == service_)
    return fail(Error(ErrorKind::usage, "import_user and service_user are one account")
                    .with_code(ErrorCode::site_config)
                    .with_hint("what reads foreign bytes must have no right to the store: see situla.toml(5)"));
  Launch importer{Program::importer, {}, std::move(place), std::move(*import_user), Rights::service};
  importer.fds = {{importer_line_.get(), importer_fd::kStore}};
  TRY_ASSIGN(importer_, step.launcher.launch_helper(std::move(importer), importer_fd::kBroker));
  importer_line_.reset();
  return {};
}

/// The request has come to the store program by now, and so Slurm has made the step's cgroups.
Result<void> ImageImport::on_importer_wanted(const Step& step) {
  if (importer_line_) {
    TRY_ASSIGN(CgroupPlace place, step.launcher.cgroups.step());
    TRY_CONTEXT(phrase(RootOperation::start_importer), start_importer(step, std::move(place)));
  }
  const int process = importer_.process.pidfd();
  return tell(store_.socket.get(), ImporterStarted(), process >= 0 ? std::vector<int>{process} : std::vector<int>());
}

Result<ImageImport> ImageImport::as_user(const Step& step, const TaskPlace& place, std::string other) {
  const bool site = !step.request.importer.empty() && other.empty();
  if (site) TRY(make_site_directory(site_runtime(step.request), step.user));
  TRY_ASSIGN(CgroupPlace cgroup, step.launcher.cgroups.step());
  auto words = site ? site_words("get", step.request) : std::vector<std::string>{"user", step.name()};
  if (!other.empty()) words.push_back(other);
  Launch what = in_task_place(step, place, Program::importer, std::move(words), std::move(cgroup));
  TRY_ASSIGN(Parcel parcel, make_parcel());
  what.fds.emplace_back(parcel.in.get(), builder_fd::kOutput);
  ImageImport import;
  import.other_ = std::move(other);
  import.as_user_ = true;
  TRY_ASSIGN(import.importer_, step.launcher.launch_helper(std::move(what), builder_fd::kBroker));
  import.parcel_ = std::move(parcel.out);
  return import;
}

Result<void> ImageImport::write_request(const Step& step) {
  if (!request_) return {};
  TRY_ASSIGN(const CgroupPlace place, step.launcher.cgroups.step());
  if (importer_.process)
    TRY_CONTEXT(phrase(RootOperation::move_to_cgroup), move_to_cgroups(importer_.process.pid(), place.text()));
  Launch writer{Program::builder, {"request"}, place, step.user};
  if (step.before_job()) {
    writer.arguments.emplace_back("before-job");
    writer.own_pid_namespace = true;
  }
  if (!other_.empty()) writer.arguments.insert(writer.arguments.end(), {"image", other_});
  writer.fds = {{step.spec.get(), builder_fd::kSpec},
                {step.environment.get(), builder_fd::kEnvironment},
                {request_.get(), builder_fd::kOutput}};
  TRY_ASSIGN(request_writer_, step.launcher.launch_helper(std::move(writer), builder_fd::kBroker));
  request_.reset();
  return {};
}

Result<void> ImageImport::on_request_writer(Clients& tasks) {
  TRY_ASSIGN(const auto message, hear(request_writer_.socket.get()));
  if (message) return pass_on(*message, tasks);
  const auto status = request_writer_.process.wait_for(kEndLimit);
  request_writer_.socket.reset();
  if (status && *status && (*status)->success()) return {};
  return fail(Error(ErrorKind::failure,
                    "collecting the credentials " + (status && *status ? (*status)->text() : std::string("hangs")))
                  .with_code(ErrorCode::helper));
}

Result<std::optional<Imported>> ImageImport::on_importer(const Step& step, Clients& tasks) {
  TRY_ASSIGN(const auto message, hear(importer_.socket.get()));
  if (!message) {
    if (!store_.socket) return fail(ended_early("the importer", importer_.process, step.launcher.cgroups));
    importer_.socket.reset();  // the store program says what became of it
    return std::optional<Imported>();
  }
  TRY(pass_on(*message, tasks));
  if (const auto* drawing = std::get_if<Draw>(&*message)) tasks.draw(*drawing);
  if (std::holds_alternative<Note>(*message) || std::holds_alternative<Draw>(*message))
    return std::optional<Imported>();
  // Of an import into the node's store only the store program may say what follows, but for numbers.
  auto news = news_in(*message);
  if (news && (!store_.process || std::holds_alternative<ImportProgress>(*news))) {
    if (std::holds_alternative<ImportBegins>(*news)) say_importing(step.request, image_name(step), tasks);
    tell_others(step.request, *news, tasks);
    news_ = std::move(news);
    return std::optional<Imported>();
  }
  const auto* done = std::get_if<ImportDone>(&*message);
  if (done == nullptr || store_.process || !parcel_)
    return fail(ErrorKind::corrupt, "the importer sent a message out of turn");
  stays_ = done->stays;
  return std::optional(Imported{done->digest, std::move(parcel_), "", done->stored});
}

Result<std::optional<Imported>> ImageImport::on_store(const Step& step, Clients& tasks) {
  TRY_ASSIGN(auto heard, hear_store(store_.socket.get()));
  if (!heard) {
    // What the request writer, then the importer said last is why. One that is killed closes its pipe to the store
    // program and its socket to us, in no order.
    constexpr int kMoment = 100;  // milliseconds
    int most = 16;                // it is the user's: one that goes on talking is not listened to for ever
    for (pollfd last{request_writer_.socket.get(), POLLIN, 0};
         most > 0 && request_writer_.socket && poll(&last, 1, kMoment) == 1; --most)
      TRY(on_request_writer(tasks));
    most = 64;  // it reads foreign bytes
    for (pollfd last{importer_.socket.get(), POLLIN, 0}; most > 0 && importer_.socket && poll(&last, 1, 0) == 1; --most)
      TRY(on_importer(step, tasks));
    // An importer whose store program was killed ends by itself, and without a word.
    if (importer_.process) {
      const auto importer = importer_.process.wait_for(std::chrono::milliseconds(1000));
      if (importer && *importer && (*importer)->signal != 0)
        return fail(ended_early("the importer", **importer, step.launcher.cgroups));
    }
    return fail(ended_early("the store program", store_.process));
  }
  TRY(pass_on(heard->message, tasks));
  if (const auto* none = std::get_if<NoStore>(&heard->message)) {
    no_store_ = none->why;
    return std::optional<Imported>();
  }
  if (std::holds_alternative<ImporterWanted>(heard->message)) {
    TRY(on_importer_wanted(step));
    return std::optional<Imported>();
  }
  if (std::holds_alternative<ImportBegins>(heard->message)) {
    say_importing(step.request, image_name(step), tasks);
    // Since the last step ended nobody has looked, and what is mounted cannot make room for this image.
    step.mounts.drop_idle(step.config.image_mount_idle);
  }
  if (auto news = news_in(heard->message)) {
    tell_others(step.request, *news, tasks);
    news_ = std::move(news);
    return std::optional<Imported>();
  }
  if (std::holds_alternative<Note>(heard->message)) return std::optional<Imported>();
  const auto* done = std::get_if<ImportDone>(&heard->message);
  if (done == nullptr) return fail(ErrorKind::corrupt, "the store program sent a message out of turn");
  if (heard->fds.size() != 1 || !is_store_name(done->store_name))
    return fail(ErrorKind::corrupt, "the store program sent no image, or named one that cannot be");
  TRY_CONTEXT(phrase(RootOperation::accept_store_image),
              check_store_image(heard->fds[0].get(), service_, step.config.service_user));
  stays_ = done->stays;
  return std::optional(
      Imported{done->digest, std::move(heard->fds[0]), done->store_name, done->stored, done->received, done->local});
}

void ImageImport::image_taken() {
  if (!stays_) hang_up();
}

void ImageImport::hang_up() {
  importer_.socket.reset();
  store_.socket.reset();
}

void ImageImport::ignore(const Step& step, int socket) {
  if (socket != request_writer() && socket != importer() && socket != store()) return;  // closed a moment ago
  if (const auto message = hear(socket); message && *message) {
    const bool wanted = socket == store() && std::holds_alternative<ImporterWanted>(**message);
    if (wanted && !on_importer_wanted(step)) hang_up();
    return;
  }
  if (socket == importer()) return importer_.socket.reset();  // the store program may still work
  if (socket == store()) return hang_up();
  request_writer_.socket.reset();
  (void)request_writer_.process.wait_for(kEndLimit);
  end_request_writer();
}

int ImageImport::ending() const {
  return (importer_.process ? importer_ : store_).process.pidfd();
}

bool ImageImport::on_ended(const Step& step) {
  if (importer_.process && store_.process) {
    (void)importer_.process.wait();
    return false;
  }
  end(step);
  return true;
}

void ImageImport::end(const Step& step) {
  hang_up();
  request_writer_ = Helper{};
  // They have nothing to unwind, hold nothing that others wait for, and the step has ended.
  if (stays_) importer_.process = Child();
  if (stays_) store_.process = Child();
  (void)ends_itself(importer_);  // what it wrote to has no name
  // One that ended before anybody told it to, and was reaped for it, has left what it held.
  const bool unwound = stays_ || as_user_ || ends_itself(store_);
  if (unwound) return;
  // Who did not end by himself is killed before anybody sweeps up after him.
  importer_.process = Child();
  store_.process = Child();
  if (auto sweeper = start_store_sweeper(step.launcher, step.config, step.name())) (void)sweeper->wait_for(kEndLimit);
}

Result<void> release_site_image(const Step& step, const TaskPlace& place) {
  Launch what = in_task_place(step, place, Program::importer, site_words("release", step.request),
                              step.launcher.cgroups.cleanup());
  what.own_pid_namespace = true;
  TRY_ASSIGN(Helper helper, step.launcher.launch_helper(std::move(what), builder_fd::kBroker));
  TRY_ASSIGN(const auto status, helper.process.wait_for(kReleaseLimit));
  const std::string program = step.request.importer + " release: ";
  if (!status)
    return fail(ErrorKind::failure,
                program + "took longer than " + std::to_string(kReleaseLimit.count()) + " s and was killed");
  if (status->success()) return {};
  // What it complained about comes first; the last message says how it ended.
  Error error(ErrorKind::failure, program + status->text());
  for (int count = 0; count < kMaxComplaints; ++count) {
    const auto message = hear(helper.socket.get());
    if (!message || !*message) break;
    if (const auto* failure = std::get_if<Failure>(&**message)) error = error_of(*failure);
  }
  return fail(std::move(error));
}

}  // namespace situla
