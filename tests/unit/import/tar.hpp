// How do tests write a tar stream? ustar headers with pax records, also ones that no tool would write.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace situla::test {

struct TarOptions {
  char type = '0';
  unsigned mode = 0644;
  std::string target;
  std::vector<std::pair<std::string, std::string>> pax;  ///< "path", "SCHILY.xattr.user.x", ...
};

class Tar {
 public:
  Tar& add(std::string_view name, std::string_view content, const TarOptions& options = {});
  Tar& file(std::string_view name, std::string_view content, unsigned mode = 0644) {
    return add(name, content, {'0', mode, {}, {}});
  }
  Tar& directory(std::string_view name, unsigned mode = 0755) { return add(name, "", {'5', mode, {}, {}}); }
  Tar& symlink(std::string_view name, const std::string& target) { return add(name, "", {'2', 0777, target, {}}); }
  Tar& hardlink(std::string_view name, const std::string& target) { return add(name, "", {'1', 0600, target, {}}); }
  [[nodiscard]] std::string bytes() const { return out_ + std::string(1024, '\0'); }

 private:
  void header(std::string_view name, size_t size, const TarOptions& options);
  std::string out_;
};

}  // namespace situla::test
