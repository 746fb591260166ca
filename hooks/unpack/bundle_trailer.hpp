// Where in a self-extracting bundle does the image lie? Its last bytes say. (What a bundle is: hooks/bundle/README.md.)
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

#include "common/base/codec.hpp"

namespace situla {

/// Offsets from the start of the file, and sizes, bytes.
struct BundleTrailer {
  uint64_t image_offset = 0, image_bytes = 0;
  uint64_t files_offset = 0, files_bytes = 0;

  static constexpr std::string_view kMagic = "SITULA-BUNDLE-1\n";
  static constexpr size_t kBytes = kMagic.size() + 4 * sizeof(uint64_t);

  [[nodiscard]] std::string bytes() const {
    Encoder encoder;
    for (const uint64_t number : {image_offset, image_bytes, files_offset, files_bytes}) encoder.u64(number);
    return encoder.take() + std::string(kMagic);
  }

  /// nullopt when a file of this size is no script that ends with one, or with an impossible one.
  static std::optional<BundleTrailer> read(int fd, uint64_t file_bytes) {
    std::array<char, kBytes> end{};
    std::array<char, 2> start{};
    if (file_bytes < kBytes || pread(fd, start.data(), start.size(), 0) != 2 || start[0] != '#' || start[1] != '!')
      return std::nullopt;
    const ssize_t count = pread(fd, end.data(), end.size(), static_cast<off_t>(file_bytes - kBytes));
    const std::string_view text(end.data(), end.size());
    if (count != static_cast<ssize_t>(end.size()) || !text.ends_with(kMagic)) return std::nullopt;
    Decoder decoder(text);
    BundleTrailer trailer;
    for (uint64_t* number : {&trailer.image_offset, &trailer.image_bytes, &trailer.files_offset, &trailer.files_bytes})
      *number = decoder.u64();
    const auto inside = [&](uint64_t offset, uint64_t bytes) {
      return offset <= file_bytes && bytes <= file_bytes - offset;
    };
    if (!inside(trailer.image_offset, trailer.image_bytes) || !inside(trailer.files_offset, trailer.files_bytes))
      return std::nullopt;
    return trailer;
  }
};

}  // namespace situla
