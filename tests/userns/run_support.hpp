// How does a test get a container? A small root file system made from busybox, prepared for real in namespaces of a
// child.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/base/log.hpp"
#include "common/sys/mount/mount_api.hpp"
#include "hooks/run/prepare.hpp"

namespace situla::test {

/// A directory that vanishes with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Writes a file with its directories; mode in octal.
void put_file(const std::string& path, const std::string& content, mode_t mode = 0644);
std::string get_file(const std::string& path);

/// busybox with the usual applets, /etc/passwd, /etc/rc as Situla writes it with WORKDIR `workdir`.
void make_busybox_root(const std::string& root, const std::string& workdir = "/");
/// /etc/rc as in COMPAT.md 5, with an entrypoint that must not run.
std::string image_rc(const std::string& workdir);

/// What a prepared container looked like from inside.
struct Outcome {
  std::string error;                           ///< of preparation, with hint; empty when it worked
  std::map<std::string, std::string> results;  ///< output of each command, standard error included
  std::string workdir;
  Environment environment;
  std::string scratch_path;
  std::string log;
  double milliseconds = 0;  ///< prepare_container() alone
};

/// Everything a test may want to change before the container is prepared.
struct Scene {
  Scene();
  TemporaryDirectory directory;  ///< on the host; holds the rest
  std::string root;              ///< directory of the root file system; busybox unless the test empties it
  std::string sysconf;           ///< ENROOT_SYSCONF_PATH; does not exist
  std::string data;              ///< ENROOT_DATA_PATH
  Environment host;
  ContainerSpec spec;
  RootSource::Kind kind = RootSource::Kind::mounted;
  MountKind mount = MountKind::automatic;  ///< Kind::image: `root` is the image's path
  std::string scratch_name = "pyxis_1.0";
  MountApi api = MountApi::automatic;
  std::chrono::milliseconds rc_time = kLoginSessionTime;

  /// Prepares the container in a child and runs the commands with the container's shell, as tasks would: with the
  /// container's environment, in its workdir. `inside` runs in the prepared process itself; what it returns is
  /// results["inside"].
  Outcome run(const std::vector<std::string>& commands, const std::function<std::string()>& inside = {});
};

/// `wanted` as `start` completes it: configuration, with the script's directives, and environment of this host.
Result<ContainerRequest> complete(ContainerRequest wanted, const Environment& host, LogSink& log);

/// mounts as --container-mounts has them.
std::vector<MountOption> mounts(const std::string& option);

}  // namespace situla::test
