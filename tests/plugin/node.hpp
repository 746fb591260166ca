// On what node does a test's step run? On this machine, in a private mount namespace with Situla installed, a user and
// an image.
#pragma once

#include <string>

#include <sys/types.h>

namespace situla::test {

/// The user of the steps; has a line in the namespace's /etc/passwd and a home.
constexpr uid_t kUserId = 64901;
constexpr gid_t kGroupId = 64902;
constexpr gid_t kOtherGroupId = 64903;
constexpr const char* kHome = "/mnt/home";
/// A squashfs file: busybox, FROM_IMAGE=yes in its environment.
constexpr const char* kImage = "/mnt/home/image.sqsh";

/// What tasks do: they print what they find.
constexpr const char* kTaskScript = "echo image=$FROM_IMAGE lang=$LANG kept=$KEPT uid=$(id -u); ls /proc/self/fd";
/// The same as a file that only the node has.
constexpr const char* kBatchScript = "/mnt/spool/slurm_script";

/// What stands where the plugin looks for its broker.
enum class Broker {
  missing,   ///< nothing
  deserter,  ///< a program that goes without an answer when it is asked to finish
  real,
};

/// Makes the node the first time. The reason why it cannot, or "".
std::string use_node(Broker broker);

}  // namespace situla::test

/// First line of a test case.
#define SITULA_NODE(broker)                                          \
  do {                                                               \
    if (geteuid() != 0) SITULA_SKIP("needs root");                   \
    const std::string node_problem = situla::test::use_node(broker); \
    INFO(node_problem);                                              \
    REQUIRE(node_problem.empty());                                   \
  } while (false)
