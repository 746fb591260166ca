// May this user read blobs that need not be fetched?
#pragma once

#include <functional>
#include <vector>

#include "hooks/registry/blob.hpp"
#include "hooks/registry/http.hpp"
#include "hooks/registry/registry_client.hpp"

namespace situla {

/// Asks the registry for one byte of each blob, all at once. A registry lets a manifest be pushed that names a blob of
/// somebody else's repository, but gives the blob only to those who may read it: so the manifest proves nothing. False
/// also where the registry cannot be reached, or answers anything unexpected.
std::vector<bool> probe_blobs(HttpTransport& transport, const RegistryClient& client, const std::vector<Blob>& blobs,
                              const std::function<bool()>& cancelled);

}  // namespace situla
