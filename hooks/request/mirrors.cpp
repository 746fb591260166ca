#include "hooks/request/mirrors.hpp"

#include <tuple>

#include "common/base/text.hpp"
#include "common/spec/registry_tables.hpp"

namespace situla {
namespace {

bool is_wildcard(const std::string& prefix) {
  return prefix.starts_with("*.");
}

const RegistryRule* best_rule(const std::string& name, const std::vector<RegistryRule>& rules) {
  const RegistryRule* best = nullptr;
  std::tuple<size_t, bool, size_t> best_rank;
  for (const RegistryRule& rule : rules) {
    const size_t length = covered_by(rule.prefix, name);
    // "a.example.com" is nearer than "*.example.com", and that nearer than "*.com".
    const std::tuple rank(length, !is_wildcard(rule.prefix), rule.prefix.size());
    if (length == 0 || (best != nullptr && rank <= best_rank)) continue;
    best = &rule;
    best_rank = rank;
  }
  return best;
}

bool wanted_from(const RegistryMirror& mirror, const ImageReference& reference) {
  if (mirror.pull == RegistryMirror::Pull::digest_only) return reference.digest.has_value();
  // The nodes of a step ask for what the tag meant at its beginning.
  if (mirror.pull == RegistryMirror::Pull::tag_only) return !reference.digest || !reference.tag.empty();
  return true;
}

/// The first `length` characters of the name give way to the location.
Result<RegistryEndpoint> moved(const ImageReference& original, const std::string& name, size_t length,
                               const std::string& location, bool insecure, const std::string& where) {
  const std::string whole = location + name.substr(length);
  const auto parts = cut(whole, '/');
  if (!parts)
    return fail(Error(ErrorKind::usage, where + ": makes '" + printable(whole) + "' of it, which has no image name")
                    .with_code(ErrorCode::site_config));
  auto parsed = ImageReference::parse(std::string(parts->first) + "#" + std::string(parts->second));
  if (!parsed) return fail(std::move(parsed).error().with_context(where));
  RegistryEndpoint endpoint{std::move(*parsed), insecure, false};
  endpoint.stands_in = endpoint.reference.registry != original.registry;
  if (!endpoint.stands_in) endpoint.reference.user = original.user;
  return endpoint;
}

}  // namespace

size_t covered_by(const std::string& prefix, const std::string& name) {
  if (is_wildcard(prefix)) {
    const size_t host = name.starts_with('[') ? 0 : name.find_first_of("/:");
    const bool beneath = host != std::string::npos && host > prefix.size() - 1 &&
                         name.compare(host - (prefix.size() - 1), prefix.size() - 1, prefix, 1) == 0;
    return beneath ? host : 0;
  }
  if (!name.starts_with(prefix)) return 0;
  const bool ends =
      name.size() == prefix.size() || std::string_view("/:@").find(name[prefix.size()]) != std::string::npos;
  return ends ? prefix.size() : 0;
}

std::string name_for_rules(const ImageReference& reference) {
  ImageReference shown = reference;
  shown.registry = normalized_place(shown.registry);
  return shown.text();
}

Result<std::vector<RegistryEndpoint>> endpoints_of(const ImageReference& reference,
                                                   const std::vector<RegistryRule>& rules) {
  const std::string name = name_for_rules(reference);
  const RegistryRule* rule = best_rule(name, rules);
  std::vector<RegistryEndpoint> endpoints;
  if (rule == nullptr) {
    endpoints.push_back({reference, false, false});
    return endpoints;
  }
  if (rule->blocked)
    return fail(Error(ErrorKind::denied, "images of " + rule->prefix + " are blocked by " + rule->where)
                    .with_code(ErrorCode::registry_blocked)
                    .with_hint("use a registry that is allowed here, or ask the administrator"));
  const size_t length = covered_by(rule->prefix, name);
  for (const RegistryMirror& mirror : rule->mirrors) {
    if (!wanted_from(mirror, reference)) continue;
    TRY_ASSIGN(RegistryEndpoint endpoint,
               moved(reference, name, length, mirror.location, mirror.insecure, rule->where));
    endpoints.push_back(std::move(endpoint));
  }
  if (rule->location.empty() || rule->location == rule->prefix) {
    endpoints.push_back({reference, rule->insecure, false});
    return endpoints;
  }
  TRY_ASSIGN(RegistryEndpoint last, moved(reference, name, length, rule->location, rule->insecure, rule->where));
  endpoints.push_back(std::move(last));
  return endpoints;
}

}  // namespace situla
