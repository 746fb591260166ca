#include "hooks/sources/origin.hpp"

#include <algorithm>

#include "hooks/registry/sha256.hpp"
#include "hooks/request/mirrors.hpp"

namespace situla {

Result<Origin> origin_of(const ImportRequest& request) {
  TRY_ASSIGN(const ImageReference reference, ImageReference::parse(request.image));
  TRY_ASSIGN(const auto endpoints, endpoints_of(reference, request.rules));
  const ImportSettings& settings = request.settings;
  Origin origin{reference.registry, reference.repository};
  const bool unverified = settings.allow_http || std::any_of(endpoints.begin(), endpoints.end(),
                                                             [](const auto& endpoint) { return endpoint.insecure; });
  if (unverified) {
    // Whoever chooses the proxy chooses who answers.
    origin.registry += " without proof";
    for (const std::string* proxy : {&settings.http_proxy, &settings.https_proxy, &settings.all_proxy})
      if (!proxy->empty()) origin.registry += " by " + digest_of(*proxy).text();  // a proxy's name may hold a password
  }
  if (const TrustAnchors& anchors = settings.trust; !anchors.pem.empty())
    origin.registry +=
        (anchors.with_nodes ? " with the certificates " : " as the certificates ") + digest_of(anchors.pem).text();
  return origin;
}

}  // namespace situla
