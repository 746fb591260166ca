// What can the importer program be told to do? Each mode returns the exit code.
#pragma once

#include <string>
#include <vector>

#include "hooks/request/request.hpp"
#include "hooks/store/own_store.hpp"

namespace situla {

/// What an importer has of the user's process that it is a fork of.
struct OwnImport {
  const ImportRequest& request;  ///< with the rules that count for the user
  const OwnStore& store;         ///< what the file to be written lies in, for messages
};

/// For the node's store: reads a request, and what a registry sends; writes one file. In a sandbox
/// (common/sys/process/sandbox.hpp) and without rights to the store. socket: SOCK_SEQPACKET to the broker: Note and
/// Draw while it goes, Failure when it fails; its closing cancels. store_socket: to the store program, which sends the
/// request (written by the job's user and not trusted) and the file to be written, and which alone says what became of
/// the image. own: it runs as the user, for his own store; the request is this one, and only its sender counts on it.
int run_importer(int socket, int store_socket, const OwnImport* own = nullptr);

/// As the user, with the descriptors of a builder (builder_fd). What only he may read (an archive, a layout, an
/// engine's image) becomes a nameless squashfs file in ENROOT_TEMP_PATH. What is in a registry comes from his own
/// store, or is imported into it (own_import.hpp): so it is on a node without an image store. job: "123.0". Either
/// image is sent to the broker. other: the reference of one that is mounted in the container; empty: the container's.
int import_as_user(const std::string& job, const std::string& other);

/// By the cluster's own program (importer= in plugstack.conf). argv: `situla-importer site get|release PROGRAM RUNTIME
/// JOB STEP`, with the descriptors of a builder (builder_fd), as the job user.
///
/// get: runs `PROGRAM get docker://IMAGE` and sends the squashfs file whose path its first line of output is: opened as
/// the user, for this step only. release: runs `PROGRAM release`, which forgets the step. Its environment is the one
/// that containers are prepared with (COMPAT.md 2), PYXIS_RUNTIME_PATH=RUNTIME, PYXIS_VERSION, and SLURM_JOB_ID and
/// SLURM_STEP_ID, which say for whom. What it writes to stderr is shown when it fails, and only then. Ends, and ends
/// the program's process group, when the broker closes its end.
int run_site_program(const std::vector<std::string>& words);

}  // namespace situla
