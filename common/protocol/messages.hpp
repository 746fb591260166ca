// What may the plugin, the broker, the builder and the importer say to each other? A closed set of messages, versioned.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/base/unique_fd.hpp"
#include "common/spec/container_spec.hpp"
#include "common/spec/digest.hpp"

namespace situla {

/// Upper bound of one encoded message in bytes. What may be larger (environments) travels as a sealed memfd beside it.
constexpr size_t kMaxMessageBytes = 32768;
/// A longer text is cut, so that a message of four always fits.
constexpr size_t kMaxTextBytes = 8000;
using StepToken = std::array<uint8_t, 16>;
/// In the same time, wherever they differ.
bool is_same(const StepToken& one, const StepToken& other);

// plugin (slurmstepd) -> broker, once, in a sealed memfd

/// Who opens the image of a step.
enum class ImageOrigin : uint8_t {
  none,      ///< a named container that has to exist
  file,      ///< a squashfs file: the tasks bring it open; for a named container its builder opens it
  registry,  ///< the importer, as the service user, into the node's store
  user,  ///< an archive, a layout, an engine, or what the cluster's program gets: as the job user, for this step only
};

/// Everything the broker knows of a step. `spec` is the user's and stays opaque to it.
struct StepRequest {
  uint32_t job_id = 0;
  uint32_t step_id = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;  ///< supplementary groups of the job
  uint32_t local_tasks = 0;      ///< of this node
  uint32_t all_tasks = 0;        ///< of the step
  uint32_t node = 0, nodes = 1;  ///< of the step: this one's number, and how many
  std::string slurm_conf;        ///< where slurmstepd has it from (SLURM_CONF); empty: the default
  ImageOrigin origin = ImageOrigin::file;
  bool named = false;  ///< --container-name
  bool job_scope =
      false;          ///< container_scope=job: the epilog removes named containers, for which it needs the environment
  bool save = false;  ///< --container-save
  bool prefetch = false;         ///< --container-prefetch: no container is made
  bool slurm_inside = true;      ///< its tasks may use Slurm's commands (common/protocol/slurm_inside.hpp)
  bool use_squashfuse = false;   ///< plugstack.conf: use_squashfuse=1, the same as mount = "fuse"
  std::string importer;          ///< plugstack.conf: importer=, for ImageOrigin::user; empty: none
  std::string importer_runtime;  ///< plugstack.conf: runtime_path=; empty: the default
  StepToken token{};             ///< what a task must show
  std::string image;             ///< for messages; printable
  std::string spec;              ///< ContainerSpec::serialize()

  static auto fields(auto& step) {
    return std::tie(step.job_id, step.step_id, step.uid, step.gid, step.groups, step.local_tasks, step.all_tasks,
                    step.node, step.nodes, step.slurm_conf, step.origin, step.named, step.job_scope, step.save,
                    step.prefetch, step.slurm_inside, step.use_squashfuse, step.importer, step.importer_runtime,
                    step.token, step.image, step.spec);
  }
};
constexpr ImageOrigin last_of(ImageOrigin) {
  return ImageOrigin::user;
}
std::string encode_step_request(const StepRequest& request);
Result<StepRequest> decode_step_request(std::string_view bytes);

// task -> broker

/// fds, which the broker leaves in the connection for the builder: [0] the task's environment (sealed memfd,
/// Environment::block()); [1] the image file, open for reading, if it is a path and the container has no name.
struct JoinRequest {
  StepToken token{};
  std::string directory;  ///< the job's working directory, where relative paths of mounts begin

  static auto fields(auto& join) { return std::tie(join.token, join.directory); }
};

/// Over the connection that brought the container, which a task keeps open if the step has --container-save: its
/// program has ended. Answer: Finished, or Failure without text: the last one's container could not be saved.
struct TaskEnded {};

// broker -> task

/// Also broker -> broker of another step that joins the container; the connection is the request.
/// fds: user namespace, mount namespace, cgroup namespace; those of `isolation` in the order ipc, uts, net, pid; the
/// environment (sealed memfd); to another broker, the directory of a named container.
struct JoinReply {
  std::string workdir;  ///< of the image; absolute, inside the container
  Isolation isolation;
  bool has_range = false;      ///< the user namespace has the user's other ids, as of MapsWanted
  std::string slurm_inside{};  ///< kSlurmInsideVariable of the task; empty: none, and always to another broker

  static auto fields(auto& reply) {
    return std::tie(reply.workdir, reply.isolation, reply.has_range, reply.slurm_inside);
  }
};

/// The answer of a step with --container-prefetch: the node has the image, and the task goes on where it is.
struct Prefetched {
  std::string digest;   ///< of the manifest, "sha256:..."
  bool stored = false;  ///< it was here before

  static auto fields(auto& it) { return std::tie(it.digest, it.stored); }
};

/// The descriptors of a container's namespaces. All tasks join them; the last close frees them.
struct NamespaceFds {
  UniqueFd user, mount, cgroup;
  Isolation isolation;
  std::vector<UniqueFd> others;  ///< those of `isolation`, in the order ipc, uts, net, pid

  /// As they are sent with a JoinReply.
  [[nodiscard]] std::vector<int> numbers() const;
  /// From the descriptors that came with a JoinReply: taken out of the front of `fds`. corrupt when there are not
  /// enough.
  static Result<NamespaceFds> take(const Isolation& isolation, std::vector<UniqueFd>& fds);
};

// any -> broker -> task

/// Something the user should read while waiting.
struct Note {
  LogLevel level = LogLevel::info;
  std::string text;
  bool of_progress =
      false;  ///< how far the node is; not for a step whose srun hears it of all nodes (step_monitor.hpp)

  static auto fields(auto& note) { return std::tie(note.level, note.text, note.of_progress); }
};
/// Bytes for the user's terminal, escape sequences included: bars of an import. Only for steps whose srun named a
/// terminal; lost when no task waits.
struct Draw {
  std::string bytes;

  static auto fields(auto& draw) { return std::tie(draw.bytes); }
};
/// Nothing is wrong, it takes time: to every task that waits, each kAliveEvery. A broker that has said nothing for
/// kSilence is stopped, or hangs.
struct Alive {};
constexpr std::chrono::seconds kAliveEvery{20};
constexpr std::chrono::seconds kSilence{180};
/// The end of what was asked for. Empty text: another task of this node has already said it.
using Failure = SentError;

// store, importer -> broker

/// The store program has something for an importer to do. Answer: ImporterStarted.
struct ImporterWanted {};
/// fds: its pidfd, where the kernel has such.
struct ImporterStarted {};

/// The store does not have the image: it is imported now. Also of an importer that runs as the user.
struct ImportBegins {};
/// It is not imported yet. Again when somebody else is waited for, and now and then.
struct ImportWaits {
  std::string what;  ///< is waited for: "the import of job 7.0 on node3, which has 12.3 MiB"

  static auto fields(auto& waits) { return std::tie(waits.what); }
};
/// How far it is, about once a second: compressed bytes of layers, and how many there are.
struct ImportProgress {
  uint64_t done = 0, total = 0;

  static auto fields(auto& progress) { return std::tie(progress.done, progress.total); }
};

/// The store program, first and last: nobody has made its directory and it cannot make it, or nothing can be written
/// there.
struct NoStore {
  std::string why;

  static auto fields(auto& none) { return std::tie(none.why); }
};

struct ImportDone {
  Digest digest;           ///< of the manifest
  std::string store_name;  ///< of the image in the node's store; empty for an import as the user
  bool stored = false;     ///< the image was in the store, or in the user's own, already
  bool stays = false;      ///< whoever sends this goes on beside the step, until its connection is closed
  bool received = false;   ///< another node of the step has imported it
  bool local = false;      ///< the file is this node's copy (local_tier of situla.toml)

  static auto fields(auto& done) {
    return std::tie(done.digest, done.store_name, done.stored, done.stays, done.received, done.local);
  }
};  // fds of the store program: the squashfs file, open for reading. The user's importer has put his into its parcel.

/// The answer of `situla-store --view`. fds: the whole view, open for reading; or, on a file system that shares no
/// blocks, a sealed memory file of one block or two that take the place of the image's own at `offset`.
struct ViewMade {
  static constexpr uint64_t kBlockBytes = 4096;
  bool whole = false;
  uint64_t offset = 0;  ///< bytes

  static auto fields(auto& view) { return std::tie(view.whole, view.offset); }
};

/// The answer of `situla-store --lend`. fds: the image, open for reading.
struct ImageLent {};

// builder <-> broker

struct MapsWanted {  ///< the builder has unshared its user namespace
  bool remap_root = false;
  bool range = false;  ///< the user's other ids as well, where he has such (common/sys/mount/subordinate_ids.hpp)

  static auto fields(auto& maps) { return std::tie(maps.remap_root, maps.range); }
};
struct MapsWritten {};
/// The builder is about to make a directory that outlives it if it is killed; without an answer. The last one counts,
/// until Ready says whether the container has it.
struct ScratchPlace {
  std::string path;  ///< as Ready::scratch_path

  static auto fields(auto& place) { return std::tie(place.path); }
};
/// What the tasks get of the environment is in builder_fd::kForTasks and kForOthers, what --container-save exports (a
/// directory, and the image beneath it) in kSaved. The namespaces are taken from /proc/<builder>/ns by the broker
/// itself.
struct Ready {
  std::string workdir;
  std::string scratch_path;  ///< opaque to the broker: given back to a cleaner that runs as the user; may be empty
  std::string root;          ///< what the root file system is made of, for the log
  bool on_image = false;     ///< it lies on the image that the broker has mounted, and is no copy of its files
  Isolation isolation;
  bool stays = false;      ///< the builder keeps running (scratch) until its socket is closed
  uint32_t directory = 0;  ///< its descriptor of the named container's directory; 0: it has no name
  std::string identity{};  ///< of the named container (hooks/containers/container_identity.hpp); empty: it has none
  uint32_t hooks_ms = 0, scripts_ms = 0;  ///< what hooks took, and the image's start scripts; for the user to read

  static auto fields(auto& ready) {
    return std::tie(ready.workdir, ready.scratch_path, ready.root, ready.on_image, ready.isolation, ready.stays,
                    ready.directory, ready.identity, ready.hooks_ms, ready.scripts_ms);
  }
};

/// Does a step of this node run the container? One with a name; what --container-save would export of it is in kSaved.
/// Or, without a directory, the one without a name of the step `job`.`step`. Answer: NotRunning, or the end of the
/// connection: then the tasks have got the namespaces and nothing is to be built.
struct RunningWanted {
  std::string ignored;     ///< what the user should read if it runs; may be empty
  std::string identity;    ///< as Ready::identity
  uint32_t directory = 0;  ///< as Ready::directory
  uint32_t job = 0, step = 0;

  static auto fields(auto& wanted) {
    return std::tie(wanted.ignored, wanted.identity, wanted.directory, wanted.job, wanted.step);
  }
};
struct NotRunning {};
/// A container that no step made (`start`) runs already. Fields as of JoinReply; its environment is in kForOthers.
struct Found {
  JoinReply container;
  std::vector<uint32_t> namespaces;  ///< the builder's descriptors, in the order of JoinReply

  static auto fields(auto& found) { return std::tie(found.container, found.namespaces); }
};
/// A named container has to be made. fds of the answer: the image file, open for reading, or a parcel with it.
struct ImageWanted {};
struct ImageReady {};
/// Before MapsWanted: an image of a registry shall be mounted in the container, too. Answer: ImageMounted, on
/// stage_image(number), where the builder has made a directory; ImageReady with its file, as for ImageWanted; or
/// NotMounted, if it is optional and cannot be had.
struct OtherImageWanted {
  std::string reference;  ///< "docker://...", of at most kLongestReference bytes; opaque to the broker, which hands it
                          ///< to a process of the same user
  uint32_t number = 0;    ///< from 1, one more each time; at most kMostOtherImages
  bool optional = false;

  static auto fields(auto& wanted) { return std::tie(wanted.reference, wanted.number, wanted.optional); }
};
constexpr uint32_t kMostOtherImages = 200;
constexpr size_t kLongestReference = 1024;
/// A named container lies on a copy of an image. Has this node that image, too, and mounted? Then the kernel's mount of
/// it serves as well, without a process that serves the copy. Answer: ImageMounted, or NotMounted.
struct CopiedImageWanted {
  std::string identity;  ///< as Ready::identity
  bool is_new = false;   ///< the copy was made just now, of the file that came with ImageReady
  // What tells this copy from any other: of stat(2), the status change in ns since the epoch.
  uint64_t inode = 0, bytes = 0, changed = 0;

  static auto fields(auto& wanted) {
    return std::tie(wanted.identity, wanted.is_new, wanted.inode, wanted.bytes, wanted.changed);
  }
};
struct ImageMounted {};  ///< beneath kStageMount, on kStageImage, or on the place of the image that was asked for
struct NotMounted {
  std::string why{};  ///< of OtherImageWanted, for the user

  static auto fields(auto& it) { return std::tie(it.why); }
};

// plugin (slurmstepd) <-> broker, control socket

struct StepPrepared {};  ///< Slurm has made the step's cgroups, and slurmstepd lives in them; without an answer
struct Finish {};        ///< all local tasks have ended; again while Saving: the step was cancelled, do not
struct Saving {          ///< --container-save has begun, which may take its time; Notes follow
  std::string cgroups;   ///< of the step's tasks: cgroups_of()

  static auto fields(auto& saving) { return std::tie(saving.cgroups); }
};
struct Finished {  ///< nothing is left of the container
  /// For the node's log: digest, source, mount and milliseconds, or a whole line as a JSON object (json_log); empty
  /// when nothing was built.
  std::string summary;

  static auto fields(auto& finished) { return std::tie(finished.summary); }
};

using Message =
    std::variant<JoinRequest, JoinReply, Note, Failure, ImportDone, MapsWanted, MapsWritten, Ready, Finish, Finished,
                 Draw, RunningWanted, NotRunning, Found, ImageWanted, ImageReady, Saving, ScratchPlace, StepPrepared,
                 TaskEnded, Alive, ImportBegins, ViewMade, ImporterWanted, ImporterStarted, NoStore, CopiedImageWanted,
                 ImageMounted, NotMounted, ImageLent, Prefetched, ImportWaits, ImportProgress, OtherImageWanted>;

constexpr LogLevel last_of(LogLevel) {
  return LogLevel::error;
}

/// common/base/wire.hpp. Texts are cut at kMaxTextBytes.
std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write, an unknown version included.
Result<Message> decode(std::string_view bytes);

}  // namespace situla
