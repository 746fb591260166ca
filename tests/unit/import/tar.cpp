#include "tests/unit/import/tar.hpp"

#include <array>
#include <cstdio>
#include <cstring>

namespace situla::test {

void Tar::header(std::string_view name, size_t size, const TarOptions& options) {
  std::array<char, 512> block{};
  std::memcpy(block.data(), name.data(), std::min<size_t>(name.size(), 100));
  std::snprintf(block.data() + 100, 8, "%07o", options.mode);
  std::snprintf(block.data() + 108, 8, "%07o", 1000U);
  std::snprintf(block.data() + 116, 8, "%07o", 1000U);
  std::snprintf(block.data() + 124, 12, "%011zo", size);
  std::snprintf(block.data() + 136, 12, "%011o", 1700000000U);
  std::memset(block.data() + 148, ' ', 8);
  block[156] = options.type;
  std::memcpy(block.data() + 157, options.target.data(), std::min<size_t>(options.target.size(), 100));
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block.data() + 148, 8, "%06o", sum);
  out_.append(block.data(), block.size());
}

Tar& Tar::add(std::string_view name, std::string_view content, const TarOptions& options) {
  auto pax = options.pax;
  if (name.size() > 100) pax.emplace_back("path", std::string(name));
  if (!pax.empty()) {
    std::string body;
    for (const auto& [key, value] : pax) {
      const std::string rest = " " + key + "=" + value + "\n";
      size_t length = rest.size() + 1;
      while (std::to_string(length).size() + rest.size() != length) ++length;
      body += std::to_string(length) + rest;
    }
    header("pax", body.size(), {'x', 0644, {}, {}});
    body.resize((body.size() + 511) / 512 * 512, '\0');
    out_ += body;
  }
  header(name, content.size(), options);
  out_ += content;
  out_.resize((out_.size() + 511) / 512 * 512, '\0');
  return *this;
}

}  // namespace situla::test
