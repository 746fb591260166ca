// How does an engine on this machine give an image away? Over the socket of its API, or by its command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/request/request.hpp"

namespace situla {

/// Heard and asked several times a second while an engine works.
struct EngineWatch {
  std::function<void(uint64_t bytes)> written;  ///< so far
  std::function<bool()> cancelled;
};

class Engine {
 public:
  virtual ~Engine() = default;
  /// Bytes that the image has unpacked, 0 if nobody knows; nullopt: the engine has no such image. Errors say that it
  /// cannot be asked; ErrorKind::denied: by this user.
  virtual Result<std::optional<uint64_t>> find(const std::string& image, const EngineWatch& watch) = 0;
  /// Writes what `docker save` writes: its layers as they are.
  virtual Result<void> save(const std::string& image, int fd, const EngineWatch& watch) = 0;
  /// "/var/run/docker.sock" or "/usr/bin/podman", printable.
  [[nodiscard]] virtual const std::string& place() const = 0;
};

/// Docker's API for ImageKind::docker_daemon (podman speaks it too), podman's own for ImageKind::podman, whose short
/// names are those of its command.
Result<std::unique_ptr<Engine>> make_engine_api(ImageKind kind, const std::string& socket);
/// The command as the user has it: contexts, remote engines, rootless storage.
std::unique_ptr<Engine> make_engine_program(ImageKind kind, const EngineSettings& settings);

}  // namespace situla
