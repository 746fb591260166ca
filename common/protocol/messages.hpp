// What may the plugin, the broker, the builder and the importer say to each other? A closed set of messages, versioned.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/log.hpp"
#include "common/base/result.hpp"
#include "common/spec/digest.hpp"

namespace situla {

/// Upper bound of one encoded message in bytes. What may be larger (environments) travels as a sealed memfd beside it.
constexpr size_t kMaxMessageBytes = 32768;
using StepToken = std::array<uint8_t, 16>;

// --- plugin (slurmstepd) -> broker, once, in a sealed memfd
// --------------------------------------------------------------

/// Who opens the image of a step.
enum class ImageOrigin : uint8_t {
  file,      ///< the tasks bring an open squashfs file
  registry,  ///< the importer, as the service user, into the node's store
  user,      ///< an archive, a layout or an engine: imported as the job user, for this step only
};

/// Everything the broker knows of a step. `spec` is the user's and stays opaque to it.
struct StepRequest {
  uint32_t job_id = 0;
  uint32_t step_id = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;  ///< supplementary groups of the job
  ImageOrigin origin = ImageOrigin::file;
  bool use_squashfuse = false;  ///< plugstack.conf: use_squashfuse=1, the same as mount = "fuse"
  StepToken token{};            ///< what a task must show
  std::string spec;             ///< ContainerSpec::serialize()
};
std::string encode_step_request(const StepRequest& request);
Result<StepRequest> decode_step_request(std::string_view bytes);

// --- task -> broker
// --------------------------------------------------------------------------------------------------------

/// fds: [0] the task's environment (sealed memfd, Environment::block()); [1] the image file, open for reading, if it is
/// a path.
struct Join {
  StepToken token{};
  std::string directory;  ///< the job's working directory, where relative paths of mounts begin
};

// --- broker -> task
// --------------------------------------------------------------------------------------------------------

/// fds: user namespace, mount namespace, cgroup namespace, environment (sealed memfd).
struct Joined {
  std::string workdir;  ///< absolute, inside the container
};

// --- any -> broker -> task
// -------------------------------------------------------------------------------------------------

/// Something the user should read while waiting.
struct Note {
  LogLevel level = LogLevel::info;
  std::string text;
};
/// Bytes for the user's terminal, escape sequences included: bars of an import. Only for steps whose srun named a
/// terminal; lost when no task waits.
struct Draw {
  std::string bytes;
};
/// The end of what was asked for. Empty text: another task of this node has already said it.
struct Failure {
  ErrorKind kind = ErrorKind::failure;
  std::string text;
  std::string hint;
};

// --- importer -> broker
// ----------------------------------------------------------------------------------------------------

struct ImportDone {
  Digest digest;        ///< manifest digest; names the file in the store
  std::string variant;  ///< file name suffix of a non-default squashfs variant: [a-z0-9-]{0,32}
};                      // from an import as the user, fds: the squashfs file

// --- builder <-> broker
// ----------------------------------------------------------------------------------------------------

struct MapsWanted {  ///< the builder has unshared its user namespace
  bool remap_root = false;
};
struct MapsWritten {};
/// fds: environment (sealed memfd). The namespaces are taken from /proc/<builder>/ns by the broker itself.
struct Ready {
  std::string workdir;
  std::string scratch_path;  ///< opaque to the broker: given back to a cleaner that runs as the user; may be empty
  bool stays = false;        ///< the builder keeps running (scratch) until its socket is closed
};

// --- plugin (slurmstepd) <-> broker, control socket
// ---------------------------------------------------------------------------

struct Finish {};    ///< all local tasks have ended
struct Finished {};  ///< nothing is left of the container

using Message =
    std::variant<Join, Joined, Note, Failure, ImportDone, MapsWanted, MapsWritten, Ready, Finish, Finished, Draw>;

/// Encoded form: u32 protocol version, u32 index in Message, fields. Over-long texts are cut so that a message always
/// fits.
std::string encode(const Message& message);
/// ErrorKind::corrupt for anything that encode() did not write, an unknown version included.
Result<Message> decode(std::string_view bytes);

}  // namespace situla
