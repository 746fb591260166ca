// Which configuration goes into a bundle, and how is it kept there? Files with their paths and modes, and facts for
// --info.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/codec.hpp"
#include "common/base/result.hpp"

namespace situla {

struct BundleFile {
  std::string path;   ///< "system/mounts.d/10-system.fstab", "user/..."
  uint32_t mode = 0;  ///< octal 0777
  std::string content;
};

struct BundleFiles {
  std::string information;  ///< what --info prints
  std::string description;
  std::vector<BundleFile> files;

  [[nodiscard]] std::string bytes() const {
    Encoder encoder;
    encoder.text(information);
    encoder.text(description);
    encoder.u32(static_cast<uint32_t>(files.size()));
    for (const BundleFile& file : files) {
      encoder.text(file.path);
      encoder.u32(file.mode);
      encoder.text(file.content);
    }
    return encoder.take();
  }

  static Result<BundleFiles> parse(std::string_view bytes) {
    Decoder decoder(bytes);
    BundleFiles parsed;
    parsed.information = decoder.text();
    parsed.description = decoder.text();
    for (uint32_t left = decoder.u32(); left > 0 && decoder.ok(); --left) {
      BundleFile file;
      file.path = decoder.text();
      file.mode = decoder.u32();
      file.content = decoder.text();
      parsed.files.push_back(std::move(file));
    }
    if (!decoder.finished()) return fail(ErrorKind::corrupt, "the bundle is damaged");
    return parsed;
  }
};

}  // namespace situla
