// How does a search get behind the checksums of tar headers? They are put right before anybody reads them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "common/base/text.hpp"

namespace situla {

/// Every block that looks like a header of ustar or GNU tar gets the checksum that it has to have.
inline std::string with_checksums(std::string_view bytes) {
  constexpr size_t kBlock = 512, kField = 148, kFieldBytes = 8, kMagic = 257;
  std::string tar(bytes);
  for (size_t at = 0; at + kBlock <= tar.size(); at += kBlock) {
    if (std::string_view(tar).substr(at + kMagic, 5) != "ustar") continue;
    tar.replace(at + kField, kFieldBytes, kFieldBytes, ' ');
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<unsigned char>(tar[at + i]);
    std::string digits(kFieldBytes, '\0');
    std::snprintf(digits.data(), digits.size(), "%06o", sum);
    tar.replace(at + kField, kFieldBytes, digits);
  }
  return tar;
}

/// The layers of an image, the lowest first, with a line between two of them.
inline std::vector<std::string> layers_in(std::string_view bytes) {
  constexpr std::string_view kBetween = "\nnext layer\n";
  constexpr size_t kMostLayers = 8;
  std::vector<std::string> layers;
  for (size_t end = 0; end != std::string_view::npos && layers.size() < kMostLayers;) {
    end = bytes.find(kBetween);
    layers.push_back(with_checksums(bytes.substr(0, end)));
    if (end != std::string_view::npos) bytes.remove_prefix(end + kBetween.size());
  }
  return layers;
}

}  // namespace situla
