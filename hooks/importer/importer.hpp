// What does the importer program do? Reads a request, fills the image store, tells the broker.
#pragma once

#include <string>
#include <vector>

namespace situla {

/// words: argv, `situla-importer --store DIR [--variant V]`. input: the serialized ImportRequest, to its end; written
/// by the job's user and not trusted. socket: SOCK_SEQPACKET to the broker: Note while it goes, then ImportDone or
/// Failure; its closing cancels. With --sweep it only removes what killed importers left in the store. Returns the exit
/// status. SSL_CERT_FILE and SSL_CERT_DIR of the request are opened with the service user's rights: a file that only
/// the job's user may read is reported as unreadable, and nothing of a file's content is ever told.
int run_importer(const std::vector<std::string>& words, int input, int socket);

}  // namespace situla
