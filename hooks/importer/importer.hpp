// What does the importer program do for the node's store? Reads a request, and what a registry sends; writes one file.
#pragma once

namespace situla {

/// In a sandbox (common/sys/process/sandbox.hpp) and without rights to the store. socket: SOCK_SEQPACKET to the broker:
/// Note and Draw while it goes, Failure when it fails; its closing cancels. store_socket: to the store program, which
/// sends the request (written by the job's user and not trusted) and the file to be written, and which alone says what
/// became of the image. Returns the exit status.
int run_importer(int socket, int store_socket);

}  // namespace situla
