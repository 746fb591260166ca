// On which descriptor numbers do the programs of a step find what they were started with?
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace situla {

/// situla-broker, started by the plugin.
namespace broker_fd {
constexpr int kControl = 3;   ///< to slurmstepd
constexpr int kListener = 4;  ///< where tasks connect; `situla-broker prolog`: where the job's epilog does
constexpr int kRequest = 5;   ///< sealed memfd: encode_step_request()
constexpr int kEnvironment =
    6;  ///< sealed memfd: the job's environment, Environment::block(); never read by the broker
}  // namespace broker_fd

/// situla-builder, started by the broker as the job user. argv: `container <MODE> <SCRATCH NAME>` | `request
/// [before-job | image REFERENCE]` | `clean <PATH>`. MODE is how the image comes: mounted, image-fuse, image-extract or
/// image-auto; or named: the builder looks for the container and asks for an image if it needs one. `situla-importer
/// user` and `site` have the same descriptors.
///
/// Root installs no descriptor of a user's process: to close it may wait for his file system forever. So where a helper
/// needs a file of another process of the same user, it is given the socket in which that file lies (Parcel); what
/// comes out as bytes is written into memory files that the broker made; and of namespaces and directories a helper
/// says its own descriptor's number, under which the broker looks into /proc.
namespace builder_fd {
constexpr int kBroker = 3;       ///< SOCK_SEQPACKET to the broker
constexpr int kSpec = 4;         ///< sealed memfd: ContainerSpec::serialize()
constexpr int kEnvironment = 5;  ///< sealed memfd: Environment::block(); not for container
constexpr int kImage = 6;      ///< container, for MODE image-*: the image file or a parcel with it; none: kTask has it
constexpr int kOutput = 6;     ///< request: a pipe, the store program's input. Importer: the parcel for the image
constexpr int kTask = 7;       ///< container: the asking task's connection, in which its JoinRequest lies
constexpr int kForTasks = 8;   ///< container: memfd for what the tasks get of the environment: Environment::block()
constexpr int kForOthers = 9;  ///< container: the same for tasks of other steps that join
constexpr int kSaved = 10;     ///< container: the parcel for what --container-save exports; none: nothing is saved
}  // namespace builder_fd

/// situla-saver, started by the broker as the job user: kBroker, kSpec and kEnvironment as for the builder, and
namespace saver_fd {
constexpr int kFiles = 6;  ///< what the builder put into kSaved: ExportSource::directory, and maybe ::image
constexpr int kImage = 7;  ///< ExportSource::image, if the broker mounted it; none: it does not know of one
}  // namespace saver_fd

/// What is noted for the time after a job.
constexpr const char* kJobsDirectory = SITULA_RUNTIME_DIR "/jobs";
constexpr const char* kContainersDirectory = SITULA_RUNTIME_DIR "/containers";
inline std::string job_note_path(uint32_t job, std::string_view what) {
  return std::string(kJobsDirectory) + "/" + std::to_string(job) + "." + std::string(what);
}

/// Where the environment of a job is kept for the epilog: keep_environment. Of that user's job: numbers come again.
constexpr const char* kEnvironmentNote = ".environment";
inline std::string job_environment_path(uint32_t job, uid_t user) {
  return job_note_path(job, std::to_string(user)) + kEnvironmentNote;
}
/// The cgroups of a job in which something may outlive it: the text of NodeCgroups::job().
inline std::string job_cgroups_path(uint32_t job) {
  return job_note_path(job, "cgroups");
}

/// The socket of what a job's prolog has begun, for as long as that works: who connects ends it, and its end is that of
/// the connection.
inline std::string job_import_path(uint32_t job) {
  return job_note_path(job, "prolog");
}

/// Which directory of the user's a step has on disk, for as long as its broker lives; left by one that was killed.
constexpr const char* kScratchNote = ".scratch";
inline std::string step_scratch_path(uint32_t job, uint32_t step) {
  return job_note_path(job, std::to_string(step)) + kScratchNote;
}

/// What users may read of their steps on this node: a directory for each user's number, and in it a file JOB.STEP
/// (common/protocol/step_record.hpp). All of it is root's.
constexpr const char* kReportsDirectory = SITULA_RUNTIME_DIR "/reports";

/// A note that the step has a directory below incoming_directory(), which stays until the job has ended: other nodes
/// may send something when the step's part on this node is over.
constexpr const char* kIncomingNote = ".incoming";
inline std::string step_incoming_path(uint32_t job, uint32_t step) {
  return job_note_path(job, std::to_string(step)) + kIncomingNote;
}

/// Fixed places in the builder's mount namespace: a tmpfs that belongs to the job user is mounted on kStageMount by
/// root.
constexpr const char* kStageMount = SITULA_RUNTIME_DIR "/root";
constexpr const char* kStageImage = "image";  ///< beneath it: where root attaches the image
/// Of the images that are mounted in the container: beneath it, where root attaches the number-th of them.
inline std::string stage_image(uint32_t number) {
  return std::string(kStageImage) + "." + std::to_string(number);
}
constexpr const char* kStageDirectory = "stage";  ///< beneath it: what prepare_container() may use

/// situla-store, started by the broker as the service user. `--view`: kImage and kBroker only; `--lend`: kBroker only.
namespace store_fd {
constexpr int kRequest = 0;   ///< a pipe: what the request writer writes
constexpr int kImage = 0;     ///< --view: the image, open for reading
constexpr int kUser = 0;      ///< --answer: a user's connection to the store's socket
constexpr int kBroker = 3;    ///< SOCK_SEQPACKET to the broker
constexpr int kImporter = 4;  ///< SOCK_SEQPACKET to the importer
constexpr int kCourier = 5;   ///< with --node and --nodes: SOCK_SEQPACKET to the courier
}  // namespace store_fd

/// situla-courier, started by the broker as the job user.
namespace courier_fd {
constexpr int kBroker = 3;     ///< SOCK_SEQPACKET to the broker: its end is the step's
constexpr int kStore = 4;      ///< SOCK_SEQPACKET to the store program
constexpr int kDirectory = 5;  ///< where what other nodes send comes
}  // namespace courier_fd
/// What other nodes of a step send comes here, by `distribute = "sbcast"`: a directory of root beside the store, in
/// which each step has one that belongs to its user. The same path on all nodes.
inline std::string incoming_directory(const std::string& store) {
  return store + "-incoming";
}
/// And these are the names of what node `node` of the step sends: "image.0".
constexpr std::array<const char*, 4> kIncomingKinds = {"claim", "offer", "image", "voucher"};
inline std::string incoming_file_name(const char* kind, uint32_t node) {
  return std::string(kind) + "." + std::to_string(node);
}

/// Where the node's store answers users: packaging/system/situla-store.socket.
constexpr const char* kStoreSocket = SITULA_RUNTIME_DIR "/store.sock";

/// situla-slurm-proxy, started by the broker as the job user: kBroker, kSpec and kEnvironment as for the builder, and
namespace slurm_proxy_fd {
constexpr int kListener = 6;  ///< where commands in the container connect
constexpr int kInput = 7;     ///< sealed memfd: SlurmProxyInput
}  // namespace slurm_proxy_fd

/// situla-importer, started by the broker as the import user.
namespace importer_fd {
constexpr int kBroker = 3;  ///< SOCK_SEQPACKET to the broker
constexpr int kStore = 4;   ///< SOCK_SEQPACKET to the store program
}  // namespace importer_fd

}  // namespace situla
