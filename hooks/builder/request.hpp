// Which part of an import belongs to the user: what the importer gets to know, and what only the user may read.
#pragma once

namespace situla {

/// Mode "request": as the user, collects reference, credentials and settings and writes them to builder_fd::kOutput,
/// the importer's input. An error goes to the broker. Returns the exit code.
int write_import_request();

/// Mode "import": as the user, turns an archive, a layout or an engine's image into a nameless squashfs file in
/// ENROOT_TEMP_PATH and sends it to the broker. Returns the exit code.
int import_as_user();

}  // namespace situla
