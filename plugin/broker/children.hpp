// Which processes does the broker start, as whom, and with what? None of them keeps any privilege.
#pragma once

#include <string>

#include "common/base/result.hpp"
#include "common/protocol/messages.hpp"
#include "common/spec/site_config.hpp"
#include "common/sys/identity.hpp"
#include "common/sys/process.hpp"

namespace situla {

/// A child and the socket to talk to it.
struct Helper {
  Child process;
  UniqueFd socket;
};

/// The importer, as the service user, and with it the process of the job user that writes its input (reference,
/// credentials, proxies) into a pipe which this side never reads. Only the importer's socket may say which image was
/// imported.
struct ImportHelpers {
  Helper importer;
  Helper request_writer;
};
Result<ImportHelpers> start_import(const SiteConfig& config, const Identity& user, int spec_fd, int environment_fd);

/// What only the job user may read is imported as that user, in the asking task's mount namespace, cgroups and
/// directory.
struct UserImport {
  Identity user;
  std::string directory;
  int task_proc = -1;  ///< /proc/<asking task>
  int spec_fd = -1;
  int environment_fd = -1;
};
Result<Helper> start_user_import(const UserImport& input);

/// How the image reaches the builder.
struct BuilderImage {
  UniqueFd mount;         ///< id-mapped detached mount to attach (kernel tier), or none
  UniqueFd file;          ///< open image file (other tiers), or none
  const char* mode = "";  ///< builder_fd: mounted, image-fuse, image-extract, image-auto
};
struct BuilderInput {
  Identity user;
  std::string scratch_name;  ///< "pyxis_<jobid>.<stepid>"
  std::string directory;     ///< the task's working directory; entered as the user
  UniqueFd task_proc;        ///< /proc/<asking task>: its mount namespace and cgroups
  uint64_t tmpfs_bytes = 0;  ///< size limit of the stage, 0: the kernel's default
  int spec_fd = -1;
  int environment_fd = -1;
};
Result<Helper> start_builder(const BuilderInput& input, const BuilderImage& image);

/// Removes, as the service user, what a killed importer left in the store.
Result<Child> start_store_sweeper(const SiteConfig& config);

/// Removes a scratch directory as the user who owns it; the path means nothing to this side.
Result<Child> start_cleaner(const Identity& user, const std::string& path);

}  // namespace situla
