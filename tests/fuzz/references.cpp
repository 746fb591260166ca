#include <cstdlib>
#include <string>

#include "common/base/text.hpp"
#include "common/spec/device_name.hpp"
#include "common/spec/image_reference.hpp"
#include "common/spec/resolve_rule.hpp"
#include "common/spec/step_name.hpp"
#include "hooks/request/request.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace situla;

/// It becomes a file in the user's directory.
void check_file_name(const std::string& name) {
  if (name.empty() || name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) std::abort();
}

void check_image_reference(std::string_view bytes) {
  const auto reference = ImageReference::parse(bytes);
  if (!reference) return;
  // Parts go into a URL and a path.
  for (const std::string* part : {&reference->registry, &reference->repository, &reference->tag})
    if (part->find_first_of(std::string_view(" \t\r\n?#%\\\0", 9)) != std::string::npos) std::abort();
  for (const std::string_view component : split(reference->repository, '/'))
    if (component.empty() || component == "." || component == "..") std::abort();
  if (reference->tag.empty() && !reference->digest) std::abort();
  // Written with every part, it is read as the same.
  ImportRequest request;
  request.image = bytes;
  const Digest digest = reference->digest.value_or(Digest());
  if (!request.pin(digest)) std::abort();
  const auto pinned = ImageReference::parse(request.image);
  if (!pinned || pinned->registry != reference->registry || pinned->repository != reference->repository ||
      pinned->tag != reference->tag || pinned->user != reference->user || pinned->digest != digest)
    std::abort();
}

}  // namespace

/// Short texts that users type: images, steps, devices, platforms.
void situla::fuzz(std::string_view bytes) {
  check_image_reference(bytes);
  if (const auto file = FileReference::parse(bytes)) {
    if (file->path.empty() || file->path.find('\0') != std::string::npos) std::abort();
    if (const auto again = FileReference::parse(file->text()); again && again->text() != file->text()) std::abort();
  }
  if (const auto engine = EngineReference::parse(bytes)) {
    const auto again = EngineReference::parse(engine->text());
    if (!again || again->name != engine->name || again->kind != engine->kind) std::abort();
    if (engine->exact_name().find("..") != std::string::npos && engine->name.find("..") == std::string::npos)
      std::abort();
  }
  if (image_kind(bytes) != ImageKind::path)
    if (const auto name = default_file_name(bytes)) check_file_name(*name);

  if (const auto digest = Digest::parse(bytes); digest && digest->text() != bytes) std::abort();
  if (const auto step = parse_step_name(bytes)) {
    const auto again = parse_step_name(step->text());
    if (!again || again->job != step->job || again->step != step->step) std::abort();
    if (!step_of_scratch(step->scratch())) std::abort();
  }
  (void)step_of_scratch(bytes);
  if (const auto devices = parse_device_names(bytes)) {
    const auto again = parse_device_names(join(*devices, ","));
    if (!again || *again != *devices) std::abort();
  }
  if (const auto rule = ResolveRule::parse(bytes); rule && !rule->is_at_least(*rule)) std::abort();
  if (const auto platform = Platform::parse(bytes)) {
    const auto again = Platform::parse(platform->os + "/" + platform->architecture + "/" + platform->variant);
    if (!again || *again != *platform) std::abort();
  }
}
