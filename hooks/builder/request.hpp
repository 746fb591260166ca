// What does the importer get to know of the user?
#pragma once

namespace situla {

/// Mode "request": as the user, collects reference, credentials and settings and writes them to builder_fd::kOutput,
/// the importer's input. An error goes to the broker. Returns the exit code.
int write_import_request();

}  // namespace situla
