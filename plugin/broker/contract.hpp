// On which descriptor numbers do the programs of a step find what they were started with?
#pragma once

namespace situla {

/// situla-broker, started by the plugin.
namespace broker_fd {
constexpr int kControl = 3;   ///< to slurmstepd
constexpr int kListener = 4;  ///< where tasks connect
constexpr int kRequest = 5;   ///< sealed memfd: encode_step_request()
constexpr int kEnvironment =
    6;  ///< sealed memfd: the job's environment, Environment::block(); never read by the broker
}  // namespace broker_fd

/// situla-builder, started by the broker as the job user. argv: `container <MODE> <SCRATCH NAME>` | `request` | `clean
/// <PATH>`. MODE is how the image comes: mounted, image-fuse, image-extract or image-auto. `situla-importer user` has
/// the same descriptors.
namespace builder_fd {
constexpr int kBroker = 3;       ///< SOCK_SEQPACKET to the broker
constexpr int kSpec = 4;         ///< sealed memfd: ContainerSpec::serialize()
constexpr int kEnvironment = 5;  ///< sealed memfd: Environment::block()
constexpr int kImage = 6;        ///< container: the image file, for MODE image-*
constexpr int kOutput = 6;       ///< request: a pipe, the importer's input
}  // namespace builder_fd

/// Fixed places in the builder's mount namespace: a tmpfs that belongs to the job user is mounted on kStageMount by
/// root.
constexpr const char* kStageMount = SITULA_RUNTIME_DIR "/root";
constexpr const char* kStageImage = "image";      ///< beneath it: where root attaches the image
constexpr const char* kStageDirectory = "stage";  ///< beneath it: what prepare_container() may use

/// situla-importer, started by the broker as the service user. Input on descriptor 0.
namespace importer_fd {
constexpr int kBroker = 3;  ///< SOCK_SEQPACKET to the broker
}  // namespace importer_fd

}  // namespace situla
