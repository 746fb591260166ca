// Which processes does the broker start, as whom, and with what? None of them keeps any privilege.
#pragma once

#include <chrono>
#include <string>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process.hpp"
#include "plugin/broker/heard.hpp"
#include "plugin/broker/launcher.hpp"

namespace situla {

/// How long a helper may take to end by itself.
constexpr std::chrono::seconds kEndLimit{5};

/// What every process needs that starts others.
struct Launcher {
  Programs programs;
  NodeCgroups cgroups;
};

/// An import into the node's store: the process of the job user that writes the request (reference, credentials,
/// proxies) into a pipe which this side never reads; the store program, as the service user, which reads it and hands
/// over the image; and the importer, as a third account, which the store program tells what to fetch. Only the store's
/// socket may say which image was imported. An import as the user is an importer alone.
struct ImportHelpers {
  Helper importer;
  Helper request_writer;
  Helper store;
  UniqueFd request;  ///< the store program's input, until there is who writes it
  UniqueFd parcel;   ///< where an importer that runs as the user puts the image
};
struct StoreImport {
  uid_t uid = 0;
  std::string job;  ///< "123.0", for the notes of those who wait
};
/// Importer and store program: before Slurm has made the step's cgroups the importer starts in Situla's own, where it
/// waits without having read a byte of anybody's. The store program stays there.
Result<ImportHelpers> start_import(const Launcher& launcher, const SiteConfig& config, const StoreImport& import);
/// When the step's cgroups are there: the importer moves into them, and the user's process starts in them.
Result<void> start_request_writer(const Launcher& launcher, const Identity& user, int spec_fd, int environment_fd,
                                  ImportHelpers& helpers);

/// Where the task is that asks first: taken while it lives, for helpers that may come later.
struct TaskPlace {
  UniqueFd mounts;        ///< its mount namespace
  std::string cgroups;    ///< cgroups_of(); inside of the job's
  std::string directory;  ///< its working directory; entered as the user

  static Result<TaskPlace> of(const NodeCgroups& cgroups, int proc_fd, std::string directory);
};

/// The cluster's own program that gets images, called as the job user (hooks/importer/site_program.hpp).
struct SiteProgram {
  std::string path;     ///< absolute; empty: none, `situla-importer user` works
  std::string runtime;  ///< absolute: below it the user finds a directory of his own, named by his uid
  uint32_t job_id = 0, step_id = 0;
};

/// What only the job user may read is imported as that user, in the asking task's place.
struct UserImport {
  Identity user;
  const TaskPlace& place;
  int spec_fd = -1;
  int environment_fd = -1;
  SiteProgram site{};
};
Result<ImportHelpers> start_user_import(const Launcher& launcher, const UserImport& input);

/// `PROGRAM release`, when the asking task is gone. Ends when the program has, or is ended; an error is the program's.
Result<void> release_site_image(const Launcher& launcher, const UserImport& import);

/// The last file in a user's parcel, or in the packet that his task sent, for the kernel to mount. A process that runs
/// as the user, and that he cannot trace, takes it out and looks at it: a file that his own file system serves hangs
/// that process, and never the broker. ErrorKind::unsupported: it is such a file.
Result<UniqueFd> take_user_image(const Launcher& launcher, const Identity& user, int socket);

/// How the image reaches the builder.
struct BuilderImage {
  UniqueFd mount;         ///< id-mapped detached mount to attach (kernel tier), or none
  UniqueFd file;          ///< other tiers: open image file, or a parcel with it; none: the task's packet has it
  const char* mode = "";  ///< builder_fd: mounted, image-fuse, image-extract, image-auto, named
};
struct BuilderInput {
  Identity user;
  const TaskPlace& place;
  std::string scratch_name{};  ///< "pyxis_<jobid>.<stepid>"
  bool outlives_step = false;  ///< what it starts serves other steps as well: it belongs to the job, not to the step
  uint64_t tmpfs_bytes = 0;    ///< size limit of the stage, 0: the kernel's default
  int spec_fd = -1;
  int task_fd = -1;  ///< connection of the asking task, with its packet in it
  int for_tasks_fd = -1, for_others_fd = -1;
  int saved_fd = -1;  ///< or none
};
Result<Helper> start_builder(const Launcher& launcher, const BuilderInput& input, const BuilderImage& image);

/// Where a driver of NVIDIA's is loaded: what is known of it is made anew if it is not right any more, while nobody
/// waits.
void refresh_inventory(const Launcher& launcher, const SiteConfig& config);

/// Removes, as the user, what a killed builder left of a named container that it was making.
Result<Helper> start_unfinished_sweeper(const Launcher& launcher, const Identity& user, const TaskPlace& place,
                                        int spec_fd, int environment_fd);

/// --container-save, as the job user in the asking task's place: writes a squashfs file of what the builder gave.
struct SaverInput {
  Identity user;
  const TaskPlace& place;
  int spec_fd = -1;
  int environment_fd = -1;
  int files_fd = -1;
  int image_fd = -1;  ///< or none
};
Result<Helper> start_saver(const Launcher& launcher, const SaverInput& input);

/// Removes, as the service user, what a killed importer left in the store.
Result<Child> start_store_sweeper(const Launcher& launcher, const SiteConfig& config);

/// Removes, as the user, the named containers of a job that has ended. environment_fd: kept_environment's file, or -1.
Result<Child> start_job_cleaner(const Launcher& launcher, uid_t user, uint32_t job, int environment_fd);

/// Removes a scratch directory as the user who owns it; the path means nothing to this side.
Result<Child> start_cleaner(const Launcher& launcher, const Identity& user, const std::string& path);

}  // namespace situla
