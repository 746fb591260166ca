// Where is an image asked for, and in which order? Mirrors, pull-through caches, blocked registries.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/registry_rule.hpp"

namespace situla {

/// A place that may have the image.
///
/// A mirror opens no image to somebody who may not read it. It is asked with the user's own login for *that* place, or
/// without any, so it gives out what this user could have fetched there himself; and a login or token for one place
/// never goes to another (`stands_in`). What a mirror answers counts as the origin's answer: the store knows the image
/// by the registry and repository that the user named. For the store, whose images are everybody's, it is therefore the
/// administrator alone who names mirrors (RuleFiles::of_node()); a user's own mirrors count for the files that this
/// user's own processes write. An administrator who gives a cache the right to private images, and lets everybody ask
/// the cache, has opened them there, with Situla or without.
struct RegistryEndpoint {
  ImageReference reference;  ///< what is asked for there; without USER@ unless it is the host that the user named
  bool insecure = false;
  /// It is not the host that the user named. Only a login for this very place is sent, whatever token server it names.
  bool stands_in = false;
};

/// How much of the image's name a prefix covers, and 0 when it does not: "example.com" and "*.example.com" also cover
/// ports, other prefixes end at '/', ':' or '@' of the name.
size_t covered_by(const std::string& prefix, const std::string& name);

/// "docker.io/library/alpine:3", the name that prefixes are compared with.
std::string name_for_rules(const ImageReference& reference);

/// Mirrors in their order, then the registry itself. The rule with the longest match decides alone. ErrorKind::denied
/// when it blocks, ErrorKind::usage when a rule makes an impossible name of this one.
Result<std::vector<RegistryEndpoint>> endpoints_of(const ImageReference& reference,
                                                   const std::vector<RegistryRule>& rules);

}  // namespace situla
