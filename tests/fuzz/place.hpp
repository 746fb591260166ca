// Where does a target put files? In a directory of its own, in memory where the machine has such a place.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/unique_fd.hpp"
#include "common/sys/file.hpp"

namespace situla {

/// Goes away with the object.
class Place {
 public:
  Place() : path_(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") {
    path_ += "/situla-fuzz-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { (void)remove_tree(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline void write_whole(const std::string& path, std::string_view bytes) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file || write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
}

}  // namespace situla
