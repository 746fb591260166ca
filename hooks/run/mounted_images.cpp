#include "hooks/run/mounted_images.hpp"

#include <algorithm>

#include "common/base/text.hpp"
#include "common/spec/image_reference.hpp"
#include "hooks/mount/fstab.hpp"
#include "hooks/scripts/definitions.hpp"
#include "hooks/scripts/site_files.hpp"

namespace situla {
namespace {

Result<void> add(const MountStep& step, std::vector<WantedImage>& images) {
  if (!is_of_registry(step)) return {};
  TRY_CONTEXT(printable(step.origin), ImageReference::parse(step.source));
  const auto same = [&](const WantedImage& each) { return each.reference == step.source; };
  auto known = std::find_if(images.begin(), images.end(), same);
  if (known == images.end()) known = images.insert(images.end(), {step.source});
  known->on_failure = std::min(known->on_failure, step.on_failure);
  return {};
}

/// Most files name none, and are not looked at again.
bool may_name_image(const SiteFile& file) {
  return file.text.find(kRegistryScheme) != std::string::npos || file.text.find("image") != std::string::npos;
}

}  // namespace

Result<std::vector<WantedImage>> wanted_images(const EnrootConfig& config, const Environment& host,
                                               const std::vector<MountOption>& options,
                                               const std::vector<std::string>& arguments) {
  std::vector<WantedImage> images;
  TRY_ASSIGN(const std::vector<SiteFile> files, mount_files(config));
  for (const SiteFile& file : files) {
    if (!may_name_image(file)) continue;
    // There is no root yet; no reference has to do with it.
    TRY_ASSIGN(const auto entries, parse_fstab(file.text, expansion_environment(host, config, ""), file.path));
    for (const FstabEntry& entry : entries) TRY(add(entry.step, images));
  }
  for (const MountOption& option : options) {
    TRY_ASSIGN(const MountStep step, step_from_option(option, host));
    TRY(add(step, images));
  }
  for (const std::string& argument : arguments) {
    TRY_ASSIGN(const MountStep step, step_from_argument(argument, "--mount", host));
    TRY(add(step, images));
  }
  return images;
}

void WantedImage::say_missing(const std::string& why, LogSink& log) const {
  log.write(on_failure == OnFailure::warn ? LogLevel::warning : LogLevel::debug,
            printable(reference) + " is not mounted: " + why);
}

void place_images(std::vector<MountStep>& steps, const ImagePlaces& places) {
  for (MountStep& step : steps) {
    if (!is_of_registry(step)) continue;
    const auto found = places.find(step.source);
    if (found != places.end()) step.place = found->second;
  }
}

}  // namespace situla
